-- Reads the first holders and a part of the queue, how many there are, and how many of the queue are known to be absent.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: how many holders, rank of the first waiter to read, how many, how many of the queue to examine for absent ones, capacity
--   (0: a lock of any kind)
-- Returns: {state, capacity or -1, used units, number of holders, holders, length of the queue, how many are absent, that part of
--   the queue}
--   holders: a row for each: owner, request, units, token, count, label, lease left ms or -1, held ms or -1; only what is known, else ''
--   queue: a row for each: owner, request, waiting ms or -1, place left ms, units, label, capacity
-- Effects: none
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most, from, many, examined, capacity = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
-- @include lib/format: newer, read_place, read_numbers, split_member
-- @include case/hold: layout
-- @include lib/clock: now, text
-- @include lib/holds: read_holds, refusal
-- @include lib/holders: list_holders
-- @include lib/queue: NOBODY, read_queue, clock_at

local holds, queue = read_holds(NOBODY), read_queue(NOBODY)
-- The queue's own clock stands still while no script comes to the queue: by that clock the waiters of an abandoned lock would never
-- be absent. So this clock goes on with the server's.
local _, pulse, clock = read_numbers(redis.call('HGET', record, 'queue'))
clock = clock_at(pulse, clock)

-- The places of this part of the queue: of each its member, and the rest of its time (ms). 0: the waiter is absent.
local function read_part(first, many)
  local members, part = many > 0 and redis.call('ZRANGE', waiters, first, text(first + many - 1)) or {}, {}
  for at, value in ipairs(members[1] and redis.call('HMGET', record, unpack(members)) or {}) do
    part[at] = read_place(members[at], value) or {}
    part[at].member, part[at].left = members[at], math.max(0, (part[at].deadline or 0) - clock)
  end
  return part
end

-- Only the first waiters are examined, since there may be very many. But if nobody was heard for a minute, all are absent.
local function count_absent(length)
  local part, absent = read_part(0, math.min(examined, length)), 0
  for _, place in ipairs(part) do
    if place.left == 0 then absent = absent + 1 end
  end
  return absent == #part and absent > 0 and now - (pulse or now) > 60000 and length or absent
end

local function list_waiters()
  local list = {}
  for at, place in ipairs(read_part(tonumber(from), many)) do
    local client, owner, request = split_member(place.member)
    local waited = place.ticket and math.max(0, now - math.floor(place.ticket / 1000)) or -1
    local asker = client and client .. ':' .. owner or place.member
    list[at] = { asker, request or '', waited, place.left, place.units or '', place.label or '', place.capacity or '' }
  end
  return list
end

-- A lock with another number of permits is shown as it is.
local is_alike = capacity == 0 or (holds.capacity == 1) == (capacity == 1)
local refused = refusal(holds, is_alike and holds.capacity or capacity)
if refused then return refused end
local found, count = list_holders(holds, most)
local head, length = queue.head and read_place(queue.head, queue.head_place), redis.call('ZCARD', waiters)
local known = count > 0 and holds.capacity or head and tonumber(head.capacity)
return { 'state', known or -1, count > 0 and holds.used or 0, count, found, length, count_absent(length), list_waiters() }
