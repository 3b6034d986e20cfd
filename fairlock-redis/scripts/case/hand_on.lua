-- Case: when the first waiter asks for exactly the units that are free after the release, it gets them, and the lock is full again.
if place and used - units + place.units == tonumber(capacity) then
  local left = ends and call('PTTL', lock) or 0 -- Negative if the key was made endless by hand, which the rule sees to.
  if left >= 0 and is_present(place, clock, {}) then
    if tonumber(place.ticket) > tonumber(served) then served = place.ticket end
    local lasts, keep = lease_of(place, clock) + kept, keep_anew(waiters, pulse, least)
    local lives = text(ends and math.max(lasts + 1000, left) or lasts)
    -- PEXPIRE is the first write, since a full server never refuses it, and then accepts the others. If a right is missing, either
    -- nothing but the end of the released hold has changed, or HSET writes the record as it was.
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
