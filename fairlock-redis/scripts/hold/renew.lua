-- uses: lib/grant
-- Renews a hold's lease and sets its count.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: owner, request, token, count, lease (ms)
-- Returns: {renewed} | {lost}
-- Effects: the lease of the hash is renewed, and the token's if it would end before; the count is set
local lock, token_key = KEYS[1], KEYS[2]
local owner, request, token, count, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local held = redis.call('HGET', lock, owner)
if not is_hold(held, read_last_grant(token_key), owner, request, token) then return { 'lost' } end
local keep, token_left = 2 * tonumber(lease), redis.call('PTTL', token_key)
-- PEXPIRE comes first: a full server never refuses it, and it changes nothing if the right to HSET is missing.
if held ~= count then
  local left = redis.call('PTTL', lock)
  redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
  redis.call('HSET', lock, owner, count)
end
redis.call('PEXPIRE', lock, lease)
if token_left < keep then redis.call('PEXPIRE', token_key, string.format('%.0f', keep)) end
return { 'renewed' }
