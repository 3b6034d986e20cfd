-- uses: lib/clock lib/hand_off lib/owner
-- Reads who holds the lock, how many wait, and a part of the line.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: rank of the first waiter to read, how many
-- Returns: {state, [owner, count] or [], lease left ms or -1, [owner, token, label, held ms] of the latest
--   grant, how many wait, [owner, request, waiting ms or -1, place left ms, label, …] of that part of the line}
-- Effects: none
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, many = ARGV[1], ARGV[2]

local described = redis.call('HMGET', sequence, 'owner', 'token', 'label', 'since')
for index = 1, 3 do described[index] = described[index] or '' end
local since = exact(described[4])
described[4] = since and whole(math.max(0, now - since)) or ''
local _, token = hold_of(redis.call('HGET', lock, 'fairlock'))
if token then described[2] = token end
local at = open_line(lock, line, places, sequence, nil)
local waiting = {}
local members = many ~= '0' and redis.call('ZRANGE', line, from, whole(from + many - 1)) or {}
for _, member in ipairs(members) do
  local client, number, request = parts_of(member)
  local place = place_of(at, member)
  -- Each member has a row, also one that can't be granted anything: so a row's number is the rank.
  waiting[#waiting + 1] = client and client .. ':' .. number or member
  waiting[#waiting + 1] = request or ''
  waiting[#waiting + 1] = place and math.max(0, now - tonumber(place.since)) or -1
  waiting[#waiting + 1] = place and math.max(0, place.deadline - at.clock) or 0
  waiting[#waiting + 1] = place and place.label or ''
end
return { 'state', { owner_in(lock) }, redis.call('PTTL', lock), described, at.length, waiting }
