-- uses: lib/clock lib/grant lib/line
-- Takes the lock, or a place at the end of the line.
-- KEYS: lock (Keys::lock), queue (Keys::queue), timeouts (Keys::timeouts), token (Keys::token)
-- ARGV: owner, request, lease (ms), wait (ms), floor (ms), mode (`wait`, `refresh` as Redisson 3.8.1, or `once`),
--   channel, label
-- Returns: {granted, token, lease ms} | {queued, rank, look again in ms or -1, 0, repaired 0/1} | {busy, ms or -1}
-- Effects: the dead at the head of the line are removed; hash and token with a lease; or list and set without one
local lock, queue, timeouts, token_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, lease, wait, floor = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local mode, channel, label = ARGV[6], ARGV[7], ARGV[8]

local held = redis.call('HGET', lock, owner)
local described = described_in(token_key)
local score = redis.call('ZSCORE', timeouts, owner)

-- A repeat, whose first answer was lost.
if described[1] and is_held_by(held, described, owner, request) then
  redis.call('PEXPIRE', lock, lease)
  return { 'granted', tonumber(described[3]), tonumber(lease) }
end

-- It changes nothing, and a full server refuses it: then nothing has been written, and nobody new gets a lock or a
-- place. Who has one goes on: the first write of his is one that is never refused.
if not score and not held then redis.call('ZADD', timeouts, 'XX', 0, '-') end

-- Step 1: remove stale waiters.
local first, dropped = drop_dead(queue, timeouts)

-- Step 2: the lock is free, and nobody is ahead.
if redis.call('EXISTS', lock) == 0 and (not first or first == owner) then
  -- What takes him out of the line is tried before he has the lock, on nobody.
  redis.call('ZREM', timeouts, '-')
  if first then redis.call('LPOP', queue, 0) end
  if score then redis.call('ZADD', timeouts, 'XX', 0, '-') end
  local members = redis.call('ZRANGE', timeouts, 0, -1)
  local token = grant(lock, token_key, described[3], owner, request, lease, label)
  if first then redis.call('LPOP', queue) end
  redis.call('ZREM', timeouts, owner)
  move_up(timeouts, members, 1, wait, floor)
  return { 'granted', token, tonumber(lease) }
end

-- Step 3: the owner holds it under an older request, which its client has given up: a new acquisition.
if held then
  return { 'granted', grant(lock, token_key, described[3], owner, request, lease, label), tonumber(lease) }
end

-- Whoever has become the first by step 1 was told nothing yet.
if dropped > 0 and redis.call('EXISTS', lock) == 0 then tell(channel, first) end

if mode == 'once' then
  return { 'busy', redis.call('PTTL', lock) }
end

-- Step 4: already in line. (The set alone is no place: it is taken anew.)
local rank = score and redis.call('LPOS', queue, owner)
if rank then
  if mode == 'refresh' then
    local ahead = first ~= owner and tonumber(redis.call('ZSCORE', timeouts, first))
    local ends = ahead or now + math.max(0, redis.call('PTTL', lock))
    redis.call('ZADD', timeouts, whole(ends + tonumber(wait)), owner)
  end
  return { 'queued', rank, look_in(lock, rank), 0, 0 }
end

-- Step 5: take a place.
local repaired = 0
if score or redis.call('LPOS', queue, owner) then
  redis.call('LREM', queue, 0, owner)
  redis.call('ZREM', timeouts, owner)
  repaired = 1
end
rank = redis.call('LLEN', queue)
enqueue(lock, queue, timeouts, owner, wait)
return { 'queued', rank, look_in(lock, rank), 0, repaired }
