-- uses: lib/clock lib/grant lib/line lib/owner
-- Says that the waiters of one client are alive, and looks whether the lock is free.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: channel, then for each place: owner, request, wait (ms), lease (ms)
-- Returns: a row a place: {granted, token, lease ms} | {waiting, rank, look again in ms or -1, 0} | {lost}
-- Effects: the dead at the head are removed; a time of which less than half is left is raised to now + wait, and the
--   times of those behind by as much; the first in line is told when the lock is free
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel = ARGV[1]
local places = {}
for at = 2, #ARGV, 4 do
  local owner, request, wait, lease = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  places[#places + 1] = { owner = owner, request = request, wait = tonumber(wait), lease = lease }
end

local holder = owner_in(lock)
local described = described_in(token_key)
redis.call('ZCARD', timeouts)

local first = drop_dead(queue, timeouts)
local members, rank_of = redis.call('LRANGE', queue, 0, -1), {}
for at, owner in ipairs(members) do
  rank_of[owner] = rank_of[owner] or at - 1
end

-- Never refused, so a full server takes the rest: who waits there must not lose his place.
redis.call('ZREM', timeouts, '-')
local rows, first_is_here = {}, false
for at, place in ipairs(places) do
  local owner = place.owner
  if holder == owner and described[1] and is_held_by(true, described, owner, place.request) then
    redis.call('PEXPIRE', lock, place.lease)
    rows[at] = { 'granted', tonumber(described[3]), tonumber(place.lease) }
  elseif rank_of[owner] then
    local score = tonumber(redis.call('ZSCORE', timeouts, owner))
    if not score or score - now < place.wait / 2 then
      redis.call('ZADD', timeouts, whole(now + place.wait), owner)
      -- Those behind keep their distance: Redisson before 3.32 looks again when the one ahead of it had to be dead,
      -- and if he is not, but its own time is over by then, it sleeps for ever.
      if score then move_up(timeouts, members, rank_of[owner] + 2, score - now - place.wait, 0) end
    end
    first_is_here = first_is_here or owner == first
    rows[at] = { 'waiting', rank_of[owner], look_in(lock, rank_of[owner]), 0 }
  else
    redis.call('ZREM', timeouts, owner)
    rows[at] = { 'lost' }
  end
end
-- The message that should have told him may have been lost.
if not holder and not first_is_here then tell(channel, first) end
return rows
