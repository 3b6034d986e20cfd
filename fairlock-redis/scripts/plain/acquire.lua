-- uses: lib/clock lib/grant
-- Takes the lock, if it is free.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: owner, request, lease (ms), label
-- Returns: {granted, token, lease ms} | {busy, lease left ms or -1}
-- Effects: hash and token with a lease
local lock, token_key = KEYS[1], KEYS[2]
local owner, request, lease, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
-- A repeat, whose first answer was lost.
if described[1] and is_held_by(held, described, owner, request) then
  redis.call('PEXPIRE', lock, lease)
  return { 'granted', tonumber(described[3]), tonumber(lease) }
end
-- Free, or held under an older request, which its client has given up.
if held or redis.call('EXISTS', lock) == 0 then
  -- It changes nothing, and a full server refuses it: then nothing has been written, and nobody new gets a lock.
  if not held then redis.call('ZADD', lock, 'XX', 0, '-') end
  return { 'granted', grant(lock, token_key, described[3], owner, request, lease, label), tonumber(lease) }
end
return { 'busy', redis.call('PTTL', lock) }
