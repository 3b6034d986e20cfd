-- uses: lib/clock lib/hand_off
-- Takes the lock from whoever holds it, and makes the next in line the holder.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: knows who listens (1 or 0), prefix of the clients' channels, name of the lock
-- Returns: {taken} | {not_held}
-- Effects: hash deleted, or the next one's; the former holder and the next one are told
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local knows, client_prefix, name = ARGV[1], ARGV[2], ARGV[3]

local existed = redis.call('HLEN', lock) > 0
local holder, token = hold_of(redis.call('HGET', lock, 'fairlock'))
local at = open_line(lock, line, places, sequence, nil)
at.knows, at.client_prefix = knows, client_prefix
if existed then redis.call('DEL', lock) end
if hand_on(at) then close_line(at) end
if holder then
  local client, number = parts_of(holder)
  redis.pcall('PUBLISH', client_prefix .. client, 'taken ' .. number .. ' ' .. token .. ' ' .. name)
end
push(at, name)
return { existed and 'taken' or 'not_held' }
