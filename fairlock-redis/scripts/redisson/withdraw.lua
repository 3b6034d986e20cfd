-- Leaves the queue, if the lock has one, and says whether the request was granted.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: owner, request, wait (ms), floor (ms), channel, until when it may remove the place (see lib/clock)
-- Returns: {left} | {was_granted, token, lease left ms}
-- Effects: entry removed from list and set, those behind move up; the new first in the queue is told
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, wait, floor, channel, begin_by = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
-- @include lib/clock: late
-- @include lib/format: read_last_grant
-- @include lib/redisson: is_granted, drop_expired, move_up, wake_first

local held = redis.call('HGET', lock, owner)
local last_grant = read_last_grant(record)
if queue then redis.call('ZCARD', timeouts) end
local members = queue and redis.call('LRANGE', queue, 0, -1)
if is_granted(held, last_grant, owner, request) then
  return { 'was_granted', tonumber(last_grant[3]), math.max(0, redis.call('PTTL', lock)) }
end
if not queue then return { 'left' } end
-- The place may be that of the owner's next request.
if late(begin_by) then return late(begin_by) end
for index, member in ipairs(members) do
  if member == owner then
    -- These change nothing. A full server never refuses ZREM, and then accepts the rest; ZADD needs a right.
    redis.call('ZREM', timeouts, '-')
    redis.call('ZADD', timeouts, 'XX', 0, '-')
    redis.call('LREM', queue, 0, owner)
    move_up(timeouts, members, index + 1, wait, floor)
    break
  end
end
redis.call('ZREM', timeouts, owner)
if members[1] == owner and redis.call('EXISTS', lock) == 0 then
  wake_first(channel, queue, (drop_expired(queue, timeouts)))
end
return { 'left' }
