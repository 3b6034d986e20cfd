-- Releases the lock and tells the first in the queue, or all waiters if the lock has no queue.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: owner, request, token, channel
-- Returns: {released} | {not_held}
-- Effects: hash deleted; dead waiters at the head are removed; the first in the queue is told, or all
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include lib/format: read_last_grant
-- @include lib/redisson: is_hold, drop_expired, wake_first

local held = redis.call('HGET', lock, owner)
local last_grant = read_last_grant(record)
local first = drop_expired(queue, timeouts)
local is_held = is_hold(held, last_grant, owner, request, token)
if is_held then redis.call('DEL', lock) end
-- The hold may have expired, which causes no message.
if is_held or redis.call('EXISTS', lock) == 0 then wake_first(channel, queue, first) end
return { is_held and 'released' or 'not_held' }
