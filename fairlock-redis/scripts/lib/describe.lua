-- What `inspect` tells of the line (lib/line): who waits, and who is absent.
--
-- A place is judged by the server's clock. The line's own clock stands still while no script comes to the line: by that one, the
-- waiters of a lock that nobody uses any more would never be absent. Live waiters send heartbeats, so for them both are the same.

-- @include lib/clock: now, format_int
-- @include lib/line: PARKED, SWEEP_AFTER, split_member, parse_place

-- What is left of a place's time (ms). 0: the waiter is absent, and others go first until it is heard again.
local function place_left(state, place)
  if not place or place.is_parked then return 0 end
  return math.max(0, place.deadline - math.max(state.clock, now - state.lag))
end

-- The members of this part of the line, and their places. Each member has one, or false: so its number is its rank.
local function read_part(state, from, many)
  if many == 0 then return {}, {} end
  local members, places = redis.call('ZRANGE', state.line, from, format_int(from + many - 1)), {}
  for first = 1, #members, 1000 do
    local texts = redis.call('HMGET', state.record, unpack(members, first, math.min(first + 999, #members)))
    for _, text in ipairs(texts) do places[#places + 1] = parse_place(members[#places + 1], text) or false end
  end
  return members, places
end

-- How many of the line are known to be absent: all that are parked, and those of the first `most` others that are silent.
local function count_absent(state, most)
  if state.length == 0 then return 0 end
  local parked = redis.call('ZRANGE', state.line, PARKED, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
  local others = parked and redis.call('ZRANK', state.line, parked) or state.length
  local examined, silent = math.min(most, others), 0
  local _, places = read_part(state, 0, examined)
  for _, place in ipairs(places) do
    if place_left(state, place) == 0 then silent = silent + 1 end
  end
  -- The others are not examined, since there may be very many. But a live one would have been heard in all that time.
  if examined > 0 and silent == examined and now - state.pulse > SWEEP_AFTER then return state.length end
  return state.length - others + silent
end

-- Owner, request, waiting (ms or -1), place left (ms), and label of each waiter of this part of the line.
local function describe_line(state, from, many)
  local waiting = {}
  local members, places = read_part(state, from, tonumber(many))
  for index, member in ipairs(members) do
    local client, number, request = split_member(member)
    local place = places[index]
    -- Each member has a row, also one that can't be granted anything: so the number of the row is the rank.
    waiting[#waiting + 1] = client and client .. ':' .. number or member
    waiting[#waiting + 1] = request or ''
    waiting[#waiting + 1] = place and math.max(0, now - math.floor(place.ticket / 1000)) or -1
    waiting[#waiting + 1] = place_left(state, place)
    waiting[#waiting + 1] = place and place.label or ''
  end
  return waiting
end
