-- Cases in front of `release`, which ends a hold, and of a renewal of holds; and the case of all scripts. A case uses the locals of its
-- script.

-- @part
-- Case free: a lock of one unit is released and nobody is in the queue: it is free.
if first == nil and not ends and string.find(call('HGET', lock, member) or '', named, 1, true) == 1 then
  call('DEL', lock)
  wake_plain()
  return 0
end

-- @part
-- Case part: nobody is in the queue: the units that are released are free.
if first == nil and used and ends then
  if fields[2] == units then
    call('DEL', lock, ends)
    return 0
  end
  -- Tried without effect, since Redis undoes nothing.
  call('HDEL', lock, 'nobody')
  call('ZREM', ends, 'nobody')
  call('HSET', lock, 'used', math.max(0, used - units))
  call('HDEL', lock, member)
  call('ZREM', ends, member)
  return 0
end

-- @part
-- Case beside: the first waiter needs more units than are free after the release: all stay free. (See `turn_of`.)
if place and used - units + place.units > tonumber(capacity) and place.deadline - clock > least / 2 then
  local keep = keep_anew(waiters, pulse, least)
  call('HDEL', lock, 'nobody') -- Tried without effect, since Redis undoes nothing. A full server never refuses it.
  call('ZREM', ends, 'nobody')
  if keep then
    call('PEXPIRE', waiters, keep)
    call('PEXPIRE', record, keep)
  end
  call('HSET', record, 'queue', queue_text(served, since, text(clock), least, rests))
  call('HSET', lock, 'used', used - units)
  call('HDEL', lock, member)
  call('ZREM', ends, member)
  return 0
end

-- @part
-- Case next: the first waiter is present and asks for exactly the units that are free after the release: it becomes a holder, and the
-- lock is full. (`release` leaves `place` out where only the rule can decide.) Replies 0: released, and nothing more to do.
if place and used - units + place.units == tonumber(capacity) then
  -- The key of a lock of several units is endless (negative) if an operator made it so: the rule gives it an end again. The end of a lock
  -- of one unit is simply overwritten.
  local left = ends and call('PTTL', lock) or 0
  if left >= 0 and is_present(place, clock, {}) then
    if tonumber(place.ticket) > tonumber(served) then served = place.ticket end
    local lasts, keep = lease_of(place, clock) + kept, keep_anew(waiters, pulse, least)
    -- The keys of a lock of several units live until a second after the last end, see lib/holds.
    local lives = text(ends and math.max(lasts + 1000, left) or lasts)
    -- PEXPIRE comes first: a full server accepts it, and then the other writes. ZADD is tried without effect. If the right to ZADD or to
    -- HSET is missing, only the end of the lock's key has moved. If the right to HDEL or to ZREM is, HSET restores the record.
    call('PEXPIRE', lock, lives)
    if ends then call('ZADD', ends, 'XX', '0', 'nobody') end
    call('HSET', record, 'last', number, 'queue', queue_text(served, since, text(clock), least, rests))
    local has_left = redis.pcall('HDEL', record, first)
    if has_left == 1 then has_left = redis.pcall('ZREM', waiters, first) end
    if type(has_left) == 'table' then
      call('HSET', record, 'last', texts[1], 'queue', texts[2] or '', first, texts[3])
      return has_left
    end
    local hold = hold_text(place.units, number, '1', '0', place.label)
    if ends then call('HSET', lock, 'used', capacity, first, hold) else call('HSET', lock, first, hold) end
    call('HDEL', lock, member)
    if ends then
      call('ZADD', ends, text(now + lasts), first)
      call('ZREM', ends, member)
      call('PEXPIRE', ends, lives)
    end
    if keep then
      call('PEXPIRE', waiters, keep)
      call('PEXPIRE', record, keep)
    end
    publish(CLIENT_PREFIX .. place.client, 'granted ' .. first .. ' ' .. number .. ' ' .. lock)
    return 0
  end
end

-- @part
-- Case raise: the leases of locks of one unit grow and the counts stay: one command raises each. (GT came with Redis 7, as this number.)
if step == 1 and not count and redis.REDIS_VERSION_NUM then
  local left = #KEYS
  for at, lock in ipairs(KEYS) do
    local hold, named = redis.pcall('HGET', lock, ARGV[2 + 2 * at]), '1 ' .. ARGV[3 + 2 * at] .. ' '
    renewed[at] = type(hold) == 'string' and string.find(hold, named, 1, true) == 1 and redis.pcall('PEXPIRE', lock, lasts, 'GT') == 1
    if renewed[at] then left = left - 1 end
  end
  if left == 0 then return { 'renewed' } end
end

-- @part
-- Case layout: a later version has written the lock or its record: this version refuses, and changes nothing.
local is_newer = newer(redis.call('HGET', lock, 'mode')) or newer(redis.call('HGET', record, 'last'))
if is_newer then return is_newer end
