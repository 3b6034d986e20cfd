-- uses: lib/clock lib/grant lib/line
-- Gives the lock up and tells the first in line; with a new request only if somebody waits, and behind them.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: owner, request, token, channel, wait of the new request (ms, or empty)
-- Returns: {released} | {not_held} | {kept} | {queued, rank, look again in ms or -1}
-- Effects: hash deleted; the dead at the head are removed; the first in line is told
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, channel, again_wait = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
redis.call('ZCARD', timeouts)

local mine = is_hold(held, described, owner, request, token)
local first = drop_dead(queue, timeouts)
if not mine then
  -- It may have ended without a word to anybody.
  if redis.call('EXISTS', lock) == 0 then tell(channel, first) end
  return { 'not_held' }
end
if again_wait ~= '' and not first then return { 'kept' } end
if again_wait == '' then
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
return { 'queued', rank, -1 }
