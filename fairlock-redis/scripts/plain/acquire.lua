-- uses: lib/clock lib/grant lib/kind
-- Takes the lock if it is free.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: owner, request, lease (ms), label
-- Returns: {granted, token, lease ms} | {busy, lease left ms or -1}
-- Effects: hash and token with a lease
local lock, token_key = KEYS[1], KEYS[2]
local owner, request, lease, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local held, mode = unpack(redis.call('HMGET', lock, owner, 'mode'))
local last_grant = read_last_grant(token_key)
local granted = granted_before(lock, held, last_grant, owner, request, lease)
if granted then return granted end
if redis.call('EXISTS', lock) == 0 then
  -- It changes nothing, but a full server refuses it: then no newcomer gets a lock, and nothing has been written.
  redis.call('ZADD', lock, 'XX', 0, '-')
  return grant(lock, token_key, last_grant, owner, request, lease, label)
end
-- Also if this owner holds it under another request, see lib/grant.
if is_shared(mode) then return mismatch(mode, 'an exclusive lock') end
return { 'busy', redis.call('PTTL', lock) }
