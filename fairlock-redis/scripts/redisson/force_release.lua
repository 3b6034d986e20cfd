-- Takes the lock from its holder.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: channel, until when it may take the lock (see lib/clock)
-- Returns: {taken} | {not_held}
-- Effects: hash deleted; dead waiters at the head are removed; the first in the queue (all waiters without a queue) and the former
--   holder are told
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel, begin_by = ARGV[1], ARGV[2]
-- @include lib/clock: late
-- @include lib/format: read_last_grant
-- @include lib/holders: read_holder, not_exclusive, notify_taken
-- @include lib/redisson: drop_expired, wake_first

if late(begin_by) then return late(begin_by) end
local holder = read_holder(lock, read_last_grant(record))
local refused = not_exclusive(holder)
if refused then return refused end
local first = drop_expired(queue, timeouts)
if not holder then return { 'not_held' } end
redis.call('DEL', lock)
wake_first(channel, queue, first)
notify_taken(holder[1], holder[3], lock)
return { 'taken' }
