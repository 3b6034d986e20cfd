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
-- @include lib/clock: now
-- @include lib/last_grant: read_last_grant
-- @include lib/line: place_of
-- @include lib/holds: open_lock, refusal, wish_of
-- @include lib/holders: list_holders
-- @include lib/describe: count_absent, describe_line

local state = open_lock(lock, line, record, ends, nil, '')
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
local absent, used = count_absent(state, tonumber(examined)), count > 0 and state.used or 0
return { 'state', known or -1, used, count, rows, state.length, absent, describe_line(state, from, many) }
