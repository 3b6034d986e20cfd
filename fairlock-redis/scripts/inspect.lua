-- uses: lib/clock lib/owner
-- Reads who holds the lock and who waits.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: none
-- Returns: {state, [owner, count] or [], lease left ms or -1, [owner, token, label, held ms] of the latest
--   grant, [owner, time left ms or -1, …] of the line}
-- Effects: none
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local described = redis.call('HMGET', token_key, 'owner', 'token', 'label', 'since')
redis.call('ZCARD', timeouts) -- so that a key of another type is found out also when nobody waits
for at = 1, 3 do described[at] = described[at] or '' end
local since = exact(described[4])
described[4] = since and whole(math.max(0, now - since)) or ''
local line = {}
for _, owner in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  local score = tonumber(redis.call('ZSCORE', timeouts, owner))
  line[#line + 1] = owner
  line[#line + 1] = score and math.max(0, score - now) or -1
end
return { 'state', { owner_in(lock) }, redis.call('PTTL', lock), described, line }
