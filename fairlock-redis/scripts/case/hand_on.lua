-- Case: when the lock is full, and the first waiter asks for exactly as many units as are released, the hold goes from one to the other.
local fields = first and call('HMGET', lock, 'mode', 'used', member)
if first and fields[1] == capacity and (fields[2] or '1') == capacity and string.find(fields[3] or '', named, 1, true) == 1 then
  local texts = call('HMGET', record, 'last', 'queue', first)
  local served, pulse, clock, least, rests = read_numbers(texts[2])
  local place = read_place(first, texts[3])
  local fits = place and place.units == units and place.capacity == capacity and first ~= member
  local first_end, left = ends and call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2], ends and call('PTTL', lock) or 0
  clock = clock_at(pulse, clock, least)
  local is_plain_case = (texts[1] or number) < number and clock >= tonumber(rests) and (not ends or first_end and tonumber(first_end) > now)
  if fits and is_plain_case and left >= 0 and is_present(place, clock, {}) then
    if tonumber(place.ticket) > tonumber(served) then served = place.ticket end
    local lasts, keep = lease_of(place, clock) + kept, keep_anew(line, pulse, least)
    local lives = text(ends and math.max(lasts + 1000, left) or lasts)
    -- Down to HSET nothing is changed but the lease that ends, so nothing is lost if a right is missing. PEXPIRE is first, since a
    -- full server never refuses it.
    call('PEXPIRE', lock, lives)
    if ends then call('ZADD', ends, 'XX', '0', 'nobody') end
    call('ZREM', line, 'nobody')
    call('HDEL', record, 'nobody')
    call('HSET', record, 'last', number, 'queue', queue_text(served, since, text(clock), least, rests))
    call('HDEL', record, first)
    call('ZREM', line, first)
    call('HSET', lock, first, hold_text(units, number, '1', '0', place.label))
    call('HDEL', lock, member)
    if ends then
      call('ZADD', ends, text(now + lasts), first)
      call('ZREM', ends, member)
      call('PEXPIRE', ends, lives)
    end
    if keep then
      call('PEXPIRE', line, keep)
      call('PEXPIRE', record, keep)
    end
    pcall('PUBLISH', CLIENT_PREFIX .. place.client, 'granted ' .. first .. ' ' .. number .. ' ' .. lock)
    return 0
  end
end
