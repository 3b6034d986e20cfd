-- uses: lib/grant
-- Says how often a hold is held.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: owner, request, token, count
-- Returns: {set} | {lost}
-- Effects: the count is set, not incremented, so that a repeat is harmless
local lock, token_key = KEYS[1], KEYS[2]
local owner, request, token, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
if not is_hold(held, described, owner, request, token) then
  return { 'lost' }
end
-- This changes nothing, but a full server never refuses it, nor what follows.
local left = redis.call('PTTL', lock)
if left > 0 then redis.call('PEXPIRE', lock, left) end
redis.call('HSET', lock, owner, count)
return { 'set' }
