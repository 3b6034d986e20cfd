-- uses: lib/clock lib/hand_off lib/owner
-- Takes the lock from whoever holds it, and makes the next in line the holder.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: knows who listens (1 or 0), prefix of the clients' channels, name of the lock,
--   channel of those who wait for a plain lock, keys of Redisson's line (Keys::queue, or empty) and its times (Keys::timeouts)
-- Returns: {taken, whether to go on} | {not_held, whether to go on}
-- Effects: hash deleted, or the next one's; the former holder and the next one are told
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local knows, client_prefix, name, plain_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local other_line, other_times = ARGV[5], ARGV[6]

local owner, count = owner_in(lock)
local field = redis.call('HGET', lock, 'fairlock')
local described = redis.call('HMGET', sequence, 'owner', 'token')
local at = open_line(lock, line, places, sequence, nil)
at.knows, at.client_prefix = knows, client_prefix
at.plain_channel, at.other_line, at.other_times = plain_channel, other_line, other_times

local existed = owner or field
if at.length > 0 then
  begin(at, 'holder')
  -- As it is: HSET may be used.
  if owner then redis.call('HSET', lock, owner, count) else remember(at) end
end
if existed then redis.call('DEL', lock) end
if not (at.length > 0 and hand_on(at)) then tell_plain(at) end
-- A holder of another discipline is known by the description alone.
local client, number = parts_of(hold_of(field) or '')
local token = select(2, hold_of(field))
if not client and owner and described[1] == owner then
  client, number = string.match(owner, '^(.*):(.-)$')
  token = described[2]
end
if client and token then
  redis.pcall('PUBLISH', client_prefix .. client, 'taken ' .. number .. ' ' .. token .. ' ' .. name)
end
push(at, name)
return { existed and 'taken' or 'not_held', goes_on(at) }
