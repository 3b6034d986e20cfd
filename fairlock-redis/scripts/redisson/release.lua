-- uses: lib/clock lib/grant lib/redisson
-- Releases the lock and tells the first in line; a bump (with a new request) only if there are waiters, behind them.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: owner, request, token, channel, new request (or empty), its wait (ms), its lease (ms)
-- Returns: {released} | {not_held} | {kept}
--   | {queued, rank, recheck in ms or -1, 0} | {granted, token, lease ms}: the state of the new request
-- Effects: hash deleted; dead waiters at the head are removed; the first in line is told
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local new_request, new_wait, new_lease = ARGV[5], ARGV[6], ARGV[7]

local held = redis.call('HGET', lock, owner)
local last_grant = read_last_grant(token_key)
redis.call('ZCARD', timeouts)

local is_bump = new_request ~= ''
local first = drop_expired(queue, timeouts)
if not is_hold(held, last_grant, owner, request, token) then
  -- The hold may have expired, which causes no message.
  if redis.call('EXISTS', lock) == 0 then wake_first(channel, first) end
  if not is_bump then return { 'not_held' } end
  -- A repeat, whose first answer was lost: the new request has the lock by now, or is in line. (The list names
  -- owners only, and an owner has one request at a time.)
  local granted = granted_before(lock, held, last_grant, owner, new_request, new_lease)
  if granted then return granted end
  local rank = redis.call('ZSCORE', timeouts, owner) and redis.call('LPOS', queue, owner)
  return rank and { 'queued', rank, recheck_in(lock, rank), 0 } or { 'not_held' }
end
if not is_bump then
  redis.call('DEL', lock)
  wake_first(channel, first)
  return { 'released' }
end
if not first then return { 'kept' } end
redis.call('ZREM', timeouts, '-') -- a full server never refuses it, and so takes the rest
redis.call('ZADD', timeouts, 'XX', 0, '-')
local rank = redis.call('LLEN', queue)
enqueue(lock, queue, timeouts, owner, new_wait)
if type(redis.pcall('DEL', lock)) == 'table' then
  -- Neither RPUSH nor DEL can be tried without effect: if the right to DEL is missing, the place is removed again, and
  -- the error raised. (Redis 6.2 would take its first word for an error code if it were returned.)
  redis.call('LREM', queue, 0, owner)
  redis.call('ZREM', timeouts, owner)
  redis.call('DEL', lock)
end
wake_first(channel, first)
return { 'queued', rank, -1, 0 }
