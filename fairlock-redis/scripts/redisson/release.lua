-- uses: lib/clock lib/grant lib/line
-- Gives the lock up and tells the first in line; with a new request only if somebody waits, and behind them.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: owner, request, token, channel, new request (or empty), its wait (ms), its lease (ms)
-- Returns: {released} | {not_held} | {kept}
--   | {queued, rank, look again in ms or -1, 0} | {granted, token, lease ms}: how the new request stands
-- Effects: hash deleted; the dead at the head are removed; the first in line is told
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local again, again_wait, again_lease = ARGV[5], ARGV[6], ARGV[7]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
redis.call('ZCARD', timeouts)

local mine = is_hold(held, described, owner, request, token)
local first = drop_dead(queue, timeouts)
if not mine then
  -- It may have ended without a word to anybody.
  if redis.call('EXISTS', lock) == 0 then tell(channel, first) end
  -- A repeat, whose first answer was lost: the new request has the lock by now, or stands in line. (The list names
  -- owners only, and an owner has one request at a time.)
  if again ~= '' and described[1] and is_held_by(held, described, owner, again) then
    redis.call('PEXPIRE', lock, again_lease)
    return { 'granted', tonumber(described[3]), tonumber(again_lease) }
  end
  local rank = again ~= '' and redis.call('ZSCORE', timeouts, owner) and redis.call('LPOS', queue, owner)
  if rank then return { 'queued', rank, look_in(lock, rank), 0 } end
  return { 'not_held' }
end
if again ~= '' and not first then return { 'kept' } end
if again == '' then
  redis.call('DEL', lock)
  tell(channel, first)
  return { 'released' }
end
redis.call('ZREM', timeouts, '-') -- never refused, so a full server takes the rest
redis.call('ZADD', timeouts, 'XX', 0, '-')
local rank = redis.call('LLEN', queue)
enqueue(lock, queue, timeouts, owner, again_wait)
if type(redis.pcall('DEL', lock)) == 'table' then
  -- Neither RPUSH nor DEL can be tried on nobody: without the right to DEL the place is taken back, and the error is
  -- raised. (Redis 6.2 would take its first word for a code if it were returned.)
  redis.call('LREM', queue, 0, owner)
  redis.call('ZREM', timeouts, owner)
  redis.call('DEL', lock)
end
tell(channel, first)
return { 'queued', rank, -1, 0 }
