-- Takes the lock, or a place at the end of the queue. A plain lock has no queue.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: owner, request, lease (ms), wait (ms), floor (ms), mode (`wait` or `once`),
--   channel, label, until when it may begin (see lib/clock), perhaps a condition (see hand_off/acquire)
-- Returns: {granted, token, lease ms} | {queued, rank, recheck in ms or -1, 0, repaired 0/1} | {busy, ms or -1} |
--   {declined, `granted`, when (microseconds)} | {declined, `ahead`, how many}
-- Effects: dead waiters at the head are removed; hash and token with a lease; or list and set without one; note
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, lease, wait, floor = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local mode, channel, label, begin_by, condition = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
-- @include lib/clock: number, now, text, late, sequence_ttl
-- @include lib/format: int, grant_text, read_last_grant, last_text, read_last, newer
-- @include lib/queue: note_grant, note_ask, write_note
-- @include lib/redisson: granted_before, drop_expired, move_up, wake_first, look_again_in
-- @include lib/holders: read_holder, not_exclusive

-- Makes the owner the holder. PEXPIRE comes first, on the other key: if the user may not use it, the script ends here, and
-- leaves no hash without an end.
local function grant(last_grant)
  local token = math.max(last_grant.number + 1, (int(last_grant[3]) or 0) + 1, number)
  local note = last_grant.note
  local keep = math.max(sequence_ttl(token), 2 * tonumber(lease), note and note_grant(note, token) or 0)
  local is_new = redis.call('PEXPIRE', record, keep) == 0
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', record, 'grant', grant_text(owner, request, text(token), label), 'last', last_text(token, note))
  if is_new then redis.call('PEXPIRE', record, keep) end
  return { 'granted', token, tonumber(lease) }
end

local last_grant = read_last_grant(record)
local holder = read_holder(lock, last_grant)
local timeout = queue and redis.call('ZSCORE', timeouts, owner)

-- The owner's place may be that of a later request: only the owner names it. So even a place does not help a late request.
local reply = granted_before(lock, holder and holder[1] == owner, last_grant, owner, request, lease)
  or not_exclusive(holder) or newer(last_grant.last) or late(begin_by)
if reply then return reply end

-- This write changes nothing, but a full server refuses it: then no newcomer gets a lock or a place, and nothing has been written.
-- Holders and waiters go on: a full server never refuses their first write.
if not timeout and (queue or not holder) then redis.call('ZADD', timeouts or lock, 'XX', 0, '-') end
local kind, limit = string.match(condition or '', '^(%l)(%d+)$')
last_grant.number, last_grant.note = read_last(last_grant.last)
last_grant.number = last_grant.number or 0
if kind and kind ~= 'q' and not timeout then
  last_grant.note, reply = note_ask(last_grant.note, kind, tonumber(limit))
  if reply then write_note(last_grant.number, last_grant.note) end
  if reply then return reply end
end
if not holder and not queue then return grant(last_grant) end

-- Step 1: remove dead waiters.
local first, dropped = drop_expired(queue, timeouts)

-- Step 2: the lock is free, and no other waiter is ahead.
if not holder and (not first or first == owner) then
  -- What removes the place is tried without effect before the grant, so that a missing right leaves nothing half done.
  redis.call('ZREM', timeouts, '-')
  if first then redis.call('LPOP', queue, 0) end
  if timeout then redis.call('ZADD', timeouts, 'XX', 0, '-') end
  local members = redis.call('ZRANGE', timeouts, 0, -1)
  reply = grant(last_grant)
  if first then redis.call('LPOP', queue) end
  redis.call('ZREM', timeouts, owner)
  move_up(timeouts, members, 1, wait, floor)
  return reply
end

-- Step 3 is Redisson's re-entry. Here the owner waits like any other if it holds the lock under another request, see lib/redisson.

-- Step 1 may have made another waiter the first; nobody has told that waiter yet.
if dropped > 0 and not holder then wake_first(channel, queue, first) end

if mode == 'once' then
  write_note(last_grant.number, last_grant.note)
  return { 'busy', redis.call('PTTL', lock) }
end

-- Step 4: already in the queue. (An entry in the set alone is no place.)
local rank = timeout and redis.call('LPOS', queue, owner)
if rank then return { 'queued', rank, look_again_in(lock, rank), 0, 0 } end

-- Step 5: take a place. Its wait counts from the end of the place ahead, or of the lease.
local repaired = redis.call('LREM', queue, 0, owner) + redis.call('ZREM', timeouts, owner) > 0 and 1 or 0
rank = redis.call('LLEN', queue)
if kind == 'q' and rank > tonumber(limit) then return { 'declined', 'ahead', rank } end
local ahead = redis.call('LINDEX', queue, -1)
local start = ahead and redis.call('ZSCORE', timeouts, ahead) or now + math.max(0, redis.call('PTTL', lock))
redis.call('RPUSH', queue, owner)
redis.call('ZADD', timeouts, start + wait, owner)
return { 'queued', rank, look_again_in(lock, rank), 0, repaired }
