-- Heartbeat of one client's waiters; looks whether the lock is free.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), record (Keys::record)
-- ARGV: channel, then for each place: owner, request, wait (ms), lease (ms)
-- Returns: a row for each place: {granted, token, lease ms} | {waiting, rank, recheck in ms or -1, 0} | {lost}
-- Effects: dead waiters at the head are removed; a time of which less than half is left is raised to now + wait, and the
--   times of those behind by as much; the first in line is told if the lock is free
local lock, queue, timeouts, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel = ARGV[1]
-- @include lib/clock: now, format_int
-- @include lib/last_grant: read_last_grant, granted_before
-- @include lib/owner: read_holder, not_exclusive
-- @include lib/redisson: drop_expired, move_up, wake_first, look_again_in
local places = {}
for index = 2, #ARGV, 4 do
  local owner, request, wait, lease = ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3]
  places[#places + 1] = { owner = owner, request = request, wait = tonumber(wait), lease = lease }
end

local last_grant = read_last_grant(record)
local holder = read_holder(lock, last_grant)
local refused = not_exclusive(holder)
if refused then return refused end
redis.call('ZCARD', timeouts)

local first = drop_expired(queue, timeouts)
local members, rank_of = redis.call('LRANGE', queue, 0, -1), {}
for index, owner in ipairs(members) do
  rank_of[owner] = rank_of[owner] or index - 1
end

-- A full server never refuses it, and so takes the rest: waiters there must not lose their places.
redis.call('ZREM', timeouts, '-')
local rows, first_is_here = {}, false
for index, place in ipairs(places) do
  local owner = place.owner
  local rank = rank_of[owner]
  rows[index] = granted_before(lock, holder and holder[1] == owner, last_grant, owner, place.request, place.lease)
  if not rows[index] and rank then
    local timeout = tonumber(redis.call('ZSCORE', timeouts, owner))
    if not timeout or timeout - now < place.wait / 2 then
      redis.call('ZADD', timeouts, format_int(now + place.wait), owner)
      -- Waiters behind keep their distance: Redisson before 3.32 looks again at the time when the one ahead must be
      -- dead. If that one lives, but its own time is over by then, it sleeps for ever.
      if timeout then move_up(timeouts, members, rank + 2, timeout - now - place.wait, 0) end
    end
    first_is_here = first_is_here or owner == first
    rows[index] = { 'waiting', rank, look_again_in(lock, rank), 0 }
  elseif not rows[index] then
    redis.call('ZREM', timeouts, owner)
    rows[index] = { 'lost' }
  end
end
-- The first one's message may have been lost.
if not holder and not first_is_here then wake_first(channel, first) end
return rows
