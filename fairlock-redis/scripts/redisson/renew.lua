-- Heartbeat of one client's waiters; looks whether the lock is free.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: channel, then for each place: owner, request, wait (ms), lease (ms)
-- Returns: a row for each place: {granted, token, lease ms} | {waiting, rank, recheck in ms or -1, 0} | {lost}
-- Effects: an endless hold of a waiter gets a lease; dead waiters at the head are removed; a time of which less than half is left is
--   raised to now + wait, and the times of those behind by as much; the first in the queue is told if the lock is free
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel = ARGV[1]
-- @include lib/clock: now
-- @include lib/format: read_last_grant
-- @include lib/redisson: granted_before, drop_expired, move_up, wake_first, look_again_in
-- @include lib/holders: read_holder, not_exclusive

local last_grant = read_last_grant(record)
local holder = read_holder(lock, last_grant)
local refused = not_exclusive(holder)
if refused then return refused end
local first = drop_expired(queue, timeouts)
local members, rank_of = queue and redis.call('LRANGE', queue, 0, -1) or {}, {}
for index, owner in ipairs(members) do rank_of[owner] = rank_of[owner] or index - 1 end

-- A full server never refuses this write, and then accepts the rest: its waiters must not lose their places.
if queue then redis.call('ZREM', timeouts, '-') end
local rows, first_is_here = {}, not queue
for from = 2, #ARGV, 4 do
  local owner, request, wait, lease = ARGV[from], ARGV[from + 1], tonumber(ARGV[from + 2]), ARGV[from + 3]
  local rank = queue and rank_of[owner] or not queue and 0
  local granted = granted_before(lock, holder and holder[1] == owner, last_grant, owner, request, lease)
  rows[#rows + 1] = granted or rank and { 'waiting', rank, look_again_in(lock, rank), 0 } or { 'lost' }
  if queue and not granted and rank then
    local timeout = tonumber(redis.call('ZSCORE', timeouts, owner))
    if not timeout or timeout - now < wait / 2 then
      redis.call('ZADD', timeouts, now + wait, owner)
      -- Waiters behind keep their distance: a waiter of Redisson before 3.32 looks again when the waiter ahead must be dead. If
      -- the waiter ahead lives, and the looking waiter's own time is over by then, it sleeps for ever.
      if timeout then move_up(timeouts, members, rank + 2, timeout - now - wait, 0) end
    end
    first_is_here = first_is_here or owner == first
  elseif queue and not granted then
    redis.call('ZREM', timeouts, owner)
  end
end
-- The first waiter's message may have been lost.
if not holder and not first_is_here then wake_first(channel, queue, first) end
return rows
