-- uses: lib/clock lib/owner
-- Reads who holds the lock, how many wait, and a part of the line.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: rank of the first waiter to read, how many
-- Returns: {state, [owner, count] or [], lease left ms or -1, [owner, token, label, held ms] of the latest
--   grant, how many wait, [owner, time left ms or -1, …] of that part of the line}
-- Effects: none
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, many = ARGV[1], ARGV[2]

local described = redis.call('HMGET', token_key, 'owner', 'token', 'label', 'since')
redis.call('ZCARD', timeouts) -- so that a key of another type is found out also when nobody waits
for at = 1, 3 do described[at] = described[at] or '' end
local since = exact(described[4])
described[4] = since and whole(math.max(0, now - since)) or ''
local length, line = redis.call('LLEN', queue), {}
local owners = many ~= '0' and redis.call('LRANGE', queue, from, whole(from + many - 1)) or {}
for _, owner in ipairs(owners) do
  local score = tonumber(redis.call('ZSCORE', timeouts, owner))
  line[#line + 1] = owner
  line[#line + 1] = score and math.max(0, score - now) or -1
end
return { 'state', { owner_in(lock) }, redis.call('PTTL', lock), described, length, line }
