-- uses: lib/clock lib/hand_off lib/owner
-- Reads who holds the lock and who waits.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: none
-- Returns: {state, [owner, count] or [], lease left ms or -1, [owner, token, label, held ms] of the latest
--   grant, [owner, request, waiting ms, place left ms, label, …] of the line}
-- Effects: none
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local described = redis.call('HMGET', sequence, 'owner', 'token', 'label', 'since')
for index = 1, 3 do described[index] = described[index] or '' end
local since = exact(described[4])
described[4] = since and whole(math.max(0, now - since)) or ''
local _, token = hold_of(redis.call('HGET', lock, 'fairlock'))
if token then described[2] = token end
local at = open_line(lock, line, places, sequence, nil)
local waiting = {}
for _, member in ipairs(redis.call('ZRANGE', line, 0, -1)) do
  local client, number, request = parts_of(member)
  local place = place_of(at, member)
  if client and place then
    waiting[#waiting + 1] = client .. ':' .. number
    waiting[#waiting + 1] = request
    waiting[#waiting + 1] = math.max(0, now - tonumber(place.since))
    waiting[#waiting + 1] = math.max(0, place.deadline - at.clock)
    waiting[#waiting + 1] = place.label
  end
end
return { 'state', { owner_in(lock) }, redis.call('PTTL', lock), described, waiting }
