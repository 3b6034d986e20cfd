-- uses: lib/grant
-- Prolongs a hold and says how often it is held.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: owner, request, token, count, lease (ms)
-- Returns: {renewed} | {lost}
-- Effects: the lease of the hash is renewed, and the token's if it would end before; the count is set
local lock, token_key = KEYS[1], KEYS[2]
local owner, request, token, count, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
if not is_hold(held, described, owner, request, token) then
  return { 'lost' }
end
local keep, token_lasts = 2 * tonumber(lease), redis.call('PTTL', token_key)
-- PEXPIRE comes first, which a full server never refuses; and where a right may be missing for HSET, it changes nothing.
if held ~= count then
  local left = redis.call('PTTL', lock)
  redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
  redis.call('HSET', lock, owner, count)
end
redis.call('PEXPIRE', lock, lease)
if token_lasts < keep then redis.call('PEXPIRE', token_key, string.format('%.0f', keep)) end
return { 'renewed' }
