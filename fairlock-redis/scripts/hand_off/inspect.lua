-- uses: lib/clock lib/hand_off lib/owner
-- Reads the holder, the length of the line, and a part of the line.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: rank of the first waiter to read, how many
-- Returns: {state, [owner, count] or [], lease left ms or -1, [owner, token, label, held ms] of the last
--   grant, length of the line, [owner, request, waiting ms or -1, place left ms, label, …] of that part of the line}
-- Effects: none
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, many = ARGV[1], ARGV[2]

local last_grant = redis.call('HMGET', sequence, 'owner', 'token', 'label', 'since')
for index = 1, 3 do last_grant[index] = last_grant[index] or '' end
local since = parse_int(last_grant[4])
last_grant[4] = since and format_int(math.max(0, now - since)) or ''
local _, token = parse_hold(redis.call('HGET', lock, 'fairlock'))
if token then last_grant[2] = token end
local state = open_line(lock, line, places, sequence)
local waiting = {}
local members = many ~= '0' and redis.call('ZRANGE', line, from, format_int(from + many - 1)) or {}
for _, member in ipairs(members) do
  local client, number, request = split_member(member)
  local place = place_of(state, member)
  -- Each member has a row, also one that can't be granted anything: so the number of the row is the rank.
  waiting[#waiting + 1] = client and client .. ':' .. number or member
  waiting[#waiting + 1] = request or ''
  waiting[#waiting + 1] = place and math.max(0, now - tonumber(place.since)) or -1
  waiting[#waiting + 1] = place and math.max(0, place.deadline - state.clock) or 0
  waiting[#waiting + 1] = place and place.label or ''
end
return { 'state', { owner_in(lock) }, redis.call('PTTL', lock), last_grant, state.length, waiting }
