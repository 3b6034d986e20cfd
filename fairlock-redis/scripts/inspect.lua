-- uses: lib/clock lib/owner
-- Reads the holder, the length of the line, and a part of the line.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: rank of the first waiter to read, how many
-- Returns: {state, [owner, count] or [], lease left ms or -1, [owner, token, label, held ms] of the last
--   grant, length of the line, [owner, time left ms or -1, …] of that part of the line}
-- Effects: none
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, many = ARGV[1], ARGV[2]

local last_grant = redis.call('HMGET', token_key, 'owner', 'token', 'label', 'since')
redis.call('ZCARD', timeouts) -- finds a key of another type even if the line is empty
for index = 1, 3 do last_grant[index] = last_grant[index] or '' end
local since = parse_int(last_grant[4])
last_grant[4] = since and format_int(math.max(0, now - since)) or ''
local length, line = redis.call('LLEN', queue), {}
local owners = many ~= '0' and redis.call('LRANGE', queue, from, format_int(from + many - 1)) or {}
for _, owner in ipairs(owners) do
  local timeout = tonumber(redis.call('ZSCORE', timeouts, owner))
  line[#line + 1] = owner
  line[#line + 1] = timeout and math.max(0, timeout - now) or -1
end
return { 'state', { owner_in(lock) }, redis.call('PTTL', lock), last_grant, length, line }
