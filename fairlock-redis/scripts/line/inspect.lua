-- Reads the first holders and a part of the line, how many there are, and how many of the line are known to be absent.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: how many holders, rank of the first waiter to read, how many, how many of the line to examine for absent ones, capacity
--   (0: a lock of any kind)
-- Returns: {state, capacity or -1, used units, number of holders, holders, length of the line, how many are absent, that part of
--   the line}
--   holders: [owner, request, units, token, count, label, lease left ms or -1, held ms or -1, …]; only what is known, else ''
--   line: [owner, request, waiting ms or -1, place left ms, units/capacity and label, …]
-- Effects: none
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most, from, many, examined, capacity = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
-- @include lib/clock: now, format_int
-- @include lib/last_grant: read_last_grant
-- @include lib/line: PARKED, SWEEP_AFTER, split_member, parse_place, place_of
-- @include lib/holds: open_lock, refusal, wish_of
-- @include lib/holders: list_holders

local state = open_lock(lock, line, record, ends, nil, '')

-- The rest of a place's time (ms). 0: the waiter is absent, and others go first until it is heard again. It is judged by the
-- server's clock: the line's own clock stands still while no script comes to the line, and by that one the waiters of a lock that
-- nobody uses any more would never be absent. Live waiters send heartbeats, so for them both are the same.
local function place_left(place)
  if not place or place.letter == 'p' then return 0 end
  return math.max(0, place.deadline - math.max(state.clock, now - state.lag))
end

-- The members of this part of the line, and their places. Each member has one, or false: so its number is its rank.
local function read_part(first, many)
  if many == 0 then return {}, {} end
  local members, places = redis.call('ZRANGE', line, first, format_int(first + many - 1)), {}
  for at = 1, #members, 1000 do
    local texts = redis.call('HMGET', record, unpack(members, at, math.min(at + 999, #members)))
    for _, text in ipairs(texts) do places[#places + 1] = parse_place(members[#places + 1], text) or false end
  end
  return members, places
end

-- How many of the line are known to be absent: all that are parked, and those of the first of the others that are silent.
local function count_absent()
  if state.length == 0 then return 0 end
  local parked = redis.call('ZRANGE', line, PARKED, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
  local others = parked and redis.call('ZRANK', line, parked) or state.length
  local looked_at, silent = math.min(examined, others), 0
  local _, places = read_part(0, looked_at)
  for _, place in ipairs(places) do
    if place_left(place) == 0 then silent = silent + 1 end
  end
  -- The others are not examined, since there may be very many. But a live one would have been heard in all that time.
  if looked_at > 0 and silent == looked_at and now - state.pulse > SWEEP_AFTER then return state.length end
  return state.length - others + silent
end

-- A lock with another number of permits is shown as it is.
local is_other = state.capacity and capacity > 0 and (state.capacity == 1) ~= (capacity == 1)
if is_other or state.is_foreign then
  local refused = refusal(state, is_other and capacity or state.capacity, read_last_grant(record))
  if refused then return refused end
end
local found, count = list_holders(state, most)
local rows = {}
for _, holder in ipairs(found) do
  holder[9] = holder[5] ~= '' and math.max(0, now - math.floor(holder[5] / 1000)) or -1
  for at = 2, 9 do rows[#rows + 1] = holder[at] end
end
local known = count > 0 and state.capacity
if not known and state.length > 0 then
  local head = place_of(state, redis.call('ZRANGE', line, 0, 0)[1])
  known = head and select(2, wish_of(head))
end
local waiting = {}
local members, places = read_part(from, tonumber(many))
for index, member in ipairs(members) do
  local client, number, request = split_member(member)
  local place, owner = places[index], client and client .. ':' .. number or member
  local waited = place and math.max(0, now - math.floor(place.ticket / 1000)) or -1
  -- Each member has a row, also one that can't be granted anything: so the number of the row is the rank.
  local row = { owner, request or '', waited, place_left(place), place and place.label or '' }
  for at = 1, 5 do waiting[#waiting + 1] = row[at] end
end
return { 'state', known or -1, count > 0 and state.used or 0, count, rows, state.length, count_absent(), waiting }
