-- Releases the lock and tells the first in line.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), record (Keys::record)
-- ARGV: owner, request, token, channel
-- Returns: {released} | {not_held}
-- Effects: hash deleted; dead waiters at the head are removed; the first in line is told
local lock, queue, timeouts, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include lib/last_grant: read_last_grant, is_hold
-- @include lib/redisson: drop_expired, wake_first

local held = redis.call('HGET', lock, owner)
local last_grant = read_last_grant(record)
redis.call('ZCARD', timeouts)

local first = drop_expired(queue, timeouts)
if not is_hold(held, last_grant, owner, request, token) then
  -- The hold may have expired, which causes no message.
  if redis.call('EXISTS', lock) == 0 then wake_first(channel, first) end
  return { 'not_held' }
end
redis.call('DEL', lock)
wake_first(channel, first)
return { 'released' }
