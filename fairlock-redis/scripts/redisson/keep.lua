-- Gives a hold up, and leaves the lock taken for a time, as by another request of its owner.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: owner, request, token, request that keeps it, for how long (ms), channel, until when it may begin (see lib/clock)
-- Returns: {kept} | {not_held}
-- Effects: the record names the keeper, the count is 0, and the lease is set, even to a shorter one; dead waiters at the head are
--   removed; the first in the queue is told, or all
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, keeper, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local channel, begin_by = ARGV[6], ARGV[7]
-- @include lib/format: newer, grant_text, read_last_grant
-- @include lib/clock: late
-- @include lib/redisson: is_hold, is_granted, drop_expired, wake_first

-- A renewal, a repeat or a withdrawal that names the former request finds no hold from now on.
local held = redis.call('HGET', lock, owner)
local last_grant = read_last_grant(record)
local is_newer = newer(last_grant.last)
if is_newer then return is_newer end
local is_kept = is_granted(held, last_grant, owner, keeper) and last_grant[3] == token
if not is_kept and not is_hold(held, last_grant, owner, request, token) then return { 'not_held' } end
if not is_kept and late(begin_by) then return late(begin_by) end
local left, record_left = redis.call('PTTL', lock), redis.call('PTTL', record)
local first = drop_expired(queue, timeouts)
-- It changes nothing if the right to HSET is missing.
redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
if record_left > 0 then redis.call('PEXPIRE', record, record_left) end
if not is_kept then
  redis.call('HSET', record, 'grant', grant_text(owner, keeper, token, last_grant[4] or ''))
  redis.call('HSET', lock, owner, 0)
end
if not is_kept or left > tonumber(lease) then redis.call('PEXPIRE', lock, lease) end
-- It tells whose the hold is.
local keep = 2 * tonumber(lease)
if record_left < keep then redis.call('PEXPIRE', record, string.format('%.0f', keep)) end
wake_first(channel, queue, first)
return { 'kept' }
