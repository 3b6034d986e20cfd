-- uses: lib/grant
-- Says whether a request that is given up was granted.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: owner, request
-- Returns: {left} | {was_granted, token, lease left ms}
-- Effects: none
local lock, token_key = KEYS[1], KEYS[2]
local owner, request = ARGV[1], ARGV[2]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
if described[1] and is_held_by(held, described, owner, request) then
  return { 'was_granted', tonumber(described[3]), math.max(0, redis.call('PTTL', lock)) }
end
return { 'left' }
