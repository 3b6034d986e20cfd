-- uses: lib/clock lib/grant lib/line
-- Leaves the line.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: owner, request, wait (ms), floor (ms), channel
-- Returns: {left} | {was_granted, token, lease left ms}
-- Effects: entry removed from list and set, those behind move up; the new first in line is told
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, wait, floor, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
redis.call('ZCARD', timeouts)
local members = redis.call('LRANGE', queue, 0, -1)

if described[1] and is_held_by(held, described, owner, request) then
  return { 'was_granted', tonumber(described[3]), math.max(0, redis.call('PTTL', lock)) }
end
for at, member in ipairs(members) do
  if member == owner then
    -- These change nothing: the one is never refused, so a full server takes the rest, and the other needs a right.
    redis.call('ZREM', timeouts, '-')
    redis.call('ZADD', timeouts, 'XX', 0, '-')
    redis.call('LREM', queue, 0, owner)
    move_up(timeouts, members, at + 1, wait, floor)
    break
  end
end
redis.call('ZREM', timeouts, owner)
if members[1] == owner and redis.call('EXISTS', lock) == 0 then
  tell(channel, (drop_dead(queue, timeouts)))
end
return { 'left' }
