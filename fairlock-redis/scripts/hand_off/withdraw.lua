-- uses: lib/clock lib/hand_off
-- Leaves the line, and hands on if the lock is free. By order of an operator: the place is not put back.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, knows who listens (1 or 0), prefix of the clients' channels, name of the lock,
--   whether an operator wants it (1 or 0), channel of those who wait for a plain lock, keys of Redisson's line (Keys::queue, or
--   empty) and its times (Keys::timeouts)
-- Returns: {left, whether to go on} | {was_granted, token, lease left ms}
-- Effects: ticket and place removed; if the lock is free it is handed on; in the sequence, who was kicked
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, knows, client_prefix, name, kicks = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local plain_channel, other_line, other_times = ARGV[7], ARGV[8], ARGV[9]

local member = owner .. ':' .. request
local holder, token = hold_of(redis.call('HGET', lock, 'fairlock'))
if holder == member then return { 'was_granted', tonumber(token), math.max(0, redis.call('PTTL', lock)) } end
local at = open_line(lock, line, places, sequence, nil)
at.knows, at.client_prefix = knows, client_prefix
at.plain_channel, at.other_line, at.other_times = plain_channel, other_line, other_times
if at.length == 0 then return { 'left', 0 } end
local free = not holder and is_free(lock)
begin(at, 'waiter')
if kicks == '1' then
  remember(at, 'kicked', with_kick(at, member))
elseif free then
  remember(at)
end
leave(at, member)
at.head = nil -- it may have been his
if free then
  hand_on(at)
  push(at, name)
end
return { 'left', goes_on(at) }
