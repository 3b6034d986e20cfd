-- Reads the holder, the length of the queue, how many waiters are known to be absent, and a part of the queue.
-- KEYS: lock (Keys::lock), record (Keys::record), queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: rank of the first waiter to read, how many, how many to examine for absent ones
-- Returns: {state, holder, lease left ms or -1, length of the queue, how many are absent, that part of the queue}
--   holder: [] | [owner, count] | [owner, count, token, label, held ms], the latter for a hold by this library
--   queue: a row for each: owner, time left ms or -1
-- Effects: none
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, many, examined = ARGV[1], ARGV[2], ARGV[3]
-- @include lib/clock: now, text
-- @include lib/format: read_last_grant
-- @include lib/holders: read_holder, not_exclusive

local holder = read_holder(lock, read_last_grant(record)) or {}
local refused = not_exclusive(holder)
if refused then return refused end
if holder[3] then holder[5] = text(math.max(0, now - math.floor(holder[3] / 1000))) end
redis.call('ZCARD', timeouts) -- finds a key of another type even if the queue is empty
local length, waiters = redis.call('LLEN', queue), {}
for at, owner in ipairs(many ~= '0' and redis.call('LRANGE', queue, from, text(from + many - 1)) or {}) do
  local timeout = redis.call('ZSCORE', timeouts, owner)
  waiters[at] = { owner, timeout and math.max(0, timeout - now) or -1 }
end
-- Those whose times are over. The first that is not tells whether there is any other.
local absent = #redis.call('ZRANGE', timeouts, '-inf', now, 'BYSCORE', 'LIMIT', 0, examined)
local live = redis.call('ZRANGE', timeouts, '(' .. text(now), '+inf', 'BYSCORE', 'LIMIT', 0, 1)
absent = absent == tonumber(examined) and absent > 0 and #live == 0 and length or math.min(length, absent)
return { 'state', holder, redis.call('PTTL', lock), length, absent, waiters }
