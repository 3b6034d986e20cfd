-- Takes the lock from its holder.
-- KEYS: lock (Keys::lock), record (Keys::record)
-- ARGV: channel, until when it may take the lock (see lib/clock)
-- Returns: {taken} | {not_held}
-- Effects: hash deleted; message `0`; the former holder is told
local lock, record = KEYS[1], KEYS[2]
local channel, begin_by = ARGV[1], ARGV[2]
-- @include lib/clock: late
-- @include lib/last_grant: read_last_grant, notify_taken
-- @include lib/owner: read_holder, not_exclusive

if late(begin_by) then return late(begin_by) end
local holder = read_holder(lock, read_last_grant(record))
if not holder then return { 'not_held' } end
local refused = not_exclusive(holder)
if refused then return refused end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, '0')
notify_taken(holder, lock)
return { 'taken' }
