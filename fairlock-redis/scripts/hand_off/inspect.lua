-- uses: lib/clock lib/grant lib/kind lib/places lib/hand_off lib/inspect lib/owner
-- Reads the holder, the length of the line, how many of it are known to be absent, and a part of the line.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: rank of the first waiter to read, how many, how many of the line to examine for absent ones
-- Returns: {state, holder, lease left ms or -1, length of the line, how many are absent, that part of the line}
--   holder: [] | [owner, count] | [owner, count, token, label, held ms], the latter for a hold by this library
--   line: [owner, request, waiting ms or -1, place left ms, label, …]
-- Effects: none
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local from, many, examined = ARGV[1], ARGV[2], ARGV[3]

local holder = read_holder(lock, read_last_grant(sequence)) or {}
local refused = not_exclusive(holder)
if refused then return refused end
if holder[3] then holder[5] = format_int(math.max(0, now - math.floor(holder[3] / 1000))) end
local state = open_line(lock, line, places, sequence, nil, '')
local absent = count_absent(state, tonumber(examined))
return { 'state', holder, redis.call('PTTL', lock), state.length, absent, describe_line(state, from, many) }
