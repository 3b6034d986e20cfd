-- uses: lib/clock lib/kind lib/owner lib/places lib/shared lib/inspect
-- Reads the holders, the length of the line, how many of it are known to be absent, and a part of the line.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: rank of the first waiter to read, how many, how many of the line to examine for absent ones, capacity
-- Returns: {state, holders, capacity or -1, length of the line, how many are absent, that part of the line}
--   holders: [owner, request, units, token, count, label, lease left ms, held ms, …]
--   line: [owner, request, waiting ms or -1, place left ms, units/capacity and label, …]
-- Effects: none
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local from, many, examined, capacity = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local state = open_lock(lock, holds, line, places, sequence, nil, '')
-- A lock with another number of permits is shown as it is.
if state.is_foreign then return refusal(state, tonumber(capacity)) end
local live = state.count > 0 and redis.call('ZRANGE', holds, '(' .. format_int(now), '+inf', 'BYSCORE', 'WITHSCORES') or {}
local fields, holders = #live > 0 and redis.call('HGETALL', lock) or {}, {}
local values = {}
for index = 1, #fields, 2 do values[fields[index]] = fields[index + 1] end
for index = 1, #live, 2 do
  local member, ends = live[index], tonumber(live[index + 1])
  local client, number, request = split_member(member)
  local takes, token, count, label = string.match(values[member] or '', '^(%d+) (%d+) (%d+) (.*)$')
  if client and parse_int(token) then
    local since = math.max(0, now - math.floor(token / 1000))
    for _, value in ipairs({ client .. ':' .. number, request, takes, token, count, label, ends - now, since }) do
      holders[#holders + 1] = value
    end
  end
end
local known = #holders > 0 and state.capacity
if not known and state.length > 0 then
  local head = place_of(state, redis.call('ZRANGE', line, 0, 0)[1])
  known = head and select(2, wish_of(head))
end
local absent = count_absent(state, tonumber(examined))
return { 'state', holders, known or -1, state.length, absent, describe_line(state, from, many) }
