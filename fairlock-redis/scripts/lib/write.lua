-- Writes a plan. No script is ever half done, though Redis undoes nothing:
--
--   A missing right: each kind of command that follows is tried without effect before the first write with an effect. (Redis
--   checks the rights to keys before the script begins.) HSET can't be tried: it comes first, and all other writes after it.
--   A full server refuses a script's first write, or none: ZADD, a newcomer's first write, is refused; PEXPIRE, the first write for
--   a holder or a waiter, never is.

-- @part
-- @include lib/clock: since, text, sequence_ttl
-- @include lib/format: queue_text, last_text
-- @include lib/queue: note_grant, NOBODY
-- @include lib/write: write_grants

local function write_drops(holds, plan)
  if holds.is_torn or plan.is_clear then
    redis.call('PEXPIRE', lock, '0')
    if ends then redis.call('PEXPIRE', ends, '0') end
  elseif #plan.drops > 0 then
    redis.call('HDEL', lock, unpack(plan.drops))
    if ends then redis.call('ZREM', ends, unpack(plan.drops)) end
    if #plan.grants == 0 and ends then redis.call('HSET', lock, 'used', holds.used) end
  end
end

local function write(holds, queue, plan, is_newcomer)
  local grants, drops, leaves, has_queue = plan.grants, plan.drops, plan.leaves, queue.head or #plan.joins > 0
  local noted = queue.note and note_grant(queue.note, #grants > 0 and grants[#grants].token or 0) or 0
  if is_newcomer then redis.call('ZADD', waiters, 'XX', '0', NOBODY) end
  -- The reply, and the end of the holds' keys, need these after the writes.
  if #plan.places > 0 then redis.call('ZRANK', waiters, NOBODY) end
  if #plan.places + #leaves > 0 or #grants > 0 and ends then redis.call('PTTL', lock) end
  -- Another waiter may have a longer time to live than the waiters that are heard now.
  local lives = math.max(sequence_ttl(queue.last), 12 * math.min(queue.asks or 0, 4e12), has_queue and redis.call('PTTL', waiters) or 0, noted)
  local is_known = redis.call('PEXPIRE', record, lives) == 1
  if #drops + #leaves > 0 then
    redis.call('ZREM', waiters, NOBODY)
    redis.call('HDEL', record, NOBODY)
  end
  if not is_newcomer and (#plan.joins > 0 or #grants > 0 and ends) then redis.call('ZADD', waiters, 'XX', '0', NOBODY) end
  redis.call('HSET', record, 'last', last_text(queue.last, queue.note),
    'queue', queue_text(text(queue.served), since, text(queue.clock), text(queue.ttl), text(queue.rests)), unpack(plan.places))
  if not is_known then redis.call('PEXPIRE', record, lives) end

  write_drops(holds, plan)
  if #grants > 0 then write_grants(holds, grants) end
  if #leaves > 0 then
    redis.call('ZREM', waiters, unpack(leaves))
    redis.call('HDEL', record, unpack(leaves))
  end
  if #plan.joins > 0 then redis.call('ZADD', waiters, unpack(plan.joins)) end
  if has_queue then redis.call('PEXPIRE', waiters, lives) end
end

-- @part
-- @include lib/clock: now, text
-- @include lib/format: hold_text
-- @include lib/holds: last_end, keep_keys

local function write_grants(holds, grants)
  local fields, scores = { 'mode', holds.capacity }, {}
  if holds.capacity > 1 then fields = { 'mode', holds.capacity, 'used', holds.used } end
  for _, it in ipairs(grants) do
    fields[#fields + 1] = it.member
    fields[#fields + 1] = hold_text(it.units, text(it.token), '1', '0', it.label)
    scores[#scores + 1] = now + it.lease + kept
    scores[#scores + 1] = it.member
  end
  redis.call('HSET', lock, unpack(fields))
  if holds.capacity == 1 then
    redis.call('PEXPIRE', lock, grants[1].lease + kept)
  else
    redis.call('ZADD', ends, unpack(scores))
    keep_keys(lock, ends, last_end(ends))
  end
end
