-- Reads the first holders and a part of the queue, how many there are, and how many of the queue are known to be absent.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: how many holders, rank of the first waiter to read, how many, how many of the queue to examine for absent ones, capacity
--   (0: a lock of any kind)
-- Returns: {state, capacity or -1, used units, number of holders, holders, length of the queue, how many are absent, that part of
--   the queue}
--   holders: [owner, request, units, token, count, label, lease left ms or -1, held ms or -1, …]; only what is known, else ''
--   queue: [owner, request, waiting ms or -1, place left ms, units/capacity and label, …]
-- Effects: none
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most, from, many, examined, capacity = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local options = ''
-- @include lib/clock: now
-- @include format/place: read_place
-- @include format/queue: read_numbers
-- @include format/member: split_member
-- @include lib/holds: read_holds, refusal
-- @include lib/holders: list_holders
-- @include lib/last_grant: read_last_grant
-- @include lib/queue: NOBODY, read_queue
-- @include lib/queue_clock: clock_at

local holds, queue = read_holds(NOBODY), read_queue(NOBODY)
-- The queue's own clock stands still while no script comes to the queue: by that clock the waiters of an abandoned lock would never
-- be absent. So this clock goes on with the server's.
local _, pulse, clock = read_numbers(redis.call('HGET', record, 'queue'))
clock = clock_at(pulse, clock)

-- The members of this part of the queue, and their places. A member without a place has `false`, so that positions are ranks.
local function read_part(first, many)
  if many == 0 then return {}, {} end
  local members, places = redis.call('ZRANGE', waiters, first, string.format('%.0f', first + many - 1)), {}
  for at = 1, #members, 1000 do
    local texts = redis.call('HMGET', record, unpack(members, at, math.min(at + 999, #members)))
    for _, value in ipairs(texts) do places[#places + 1] = read_place(members[#places + 1], value) or false end
  end
  return members, places
end

-- The rest of a place's time (ms). 0: the waiter is absent.
local function place_left(place)
  return place and math.max(0, place.deadline - clock) or 0
end

-- Only the first waiters are examined, since there may be very many. But if none was heard for a minute, all are absent.
local function count_absent(length)
  local absent, _, first_places = 0, read_part(0, math.min(examined, length))
  for _, place in ipairs(first_places) do
    if place_left(place) == 0 then absent = absent + 1 end
  end
  return absent == #first_places and absent > 0 and now - (pulse or now) > 60000 and length or absent
end

local function list_waiters()
  local waiting, members, places = {}, read_part(tonumber(from), many)
  for at, member in ipairs(members) do
    local client, owner, request = split_member(member)
    local place = places[at]
    local waited = place and math.max(0, now - math.floor(place.ticket / 1000)) or -1
    local wish = place and place.units .. '/' .. place.capacity .. ' ' .. place.label or ''
    for _, shown in ipairs({ client and client .. ':' .. owner or member, request or '', waited, place_left(place), wish }) do
      waiting[#waiting + 1] = shown
    end
  end
  return waiting
end

-- A lock with another number of permits is shown as it is.
do
  local is_other = holds.capacity and capacity > 0 and (holds.capacity == 1) ~= (capacity == 1)
  local refused = (is_other or holds.is_foreign) and refusal(holds, is_other and capacity or holds.capacity, read_last_grant(record))
  if refused then return refused end
end
local found, count = list_holders(holds, most)
local rows = {}
for _, holder in ipairs(found) do
  holder[9] = holder[5] ~= '' and math.max(0, now - math.floor(holder[5] / 1000)) or -1
  for at = 2, 9 do rows[#rows + 1] = holder[at] end
end
local head, length = queue.head and read_place(queue.head, queue.head_place), redis.call('ZCARD', waiters)
local known = count > 0 and holds.capacity or head and tonumber(head.capacity)
return { 'state', known or -1, count > 0 and holds.used or 0, count, rows, length, count_absent(length), list_waiters() }
