-- Cases in front of `acquire`, which takes units of the lock or a place in the queue. A case uses the locals of its script.

-- @part
-- Case free: a lock of one unit is free and nobody is in the queue: the caller takes it.
if not ends and is_idle and told_ticket == '0' and not grace_left and number <= begin_by then
  local last = call('HGET', record, 'last') or ''
  if last < number then
    call('HSET', lock, 'mode', '1', member, hold_text('1', number, '1', '0', label)) -- A full server refuses the first write, or none.
    local refused = redis.pcall('PEXPIRE', lock, kept == 0 and lease or lease + kept)
    if type(refused) == 'table' then
      if type(redis.pcall('DEL', lock)) == 'table' then call('HDEL', lock, 'mode', member) end
      return refused
    end
    call('HSET', record, 'last', number)
    if string.sub(last, 1, 6) ~= string.sub(number, 1, 6) then call('PEXPIRE', record, '96400000') end -- See lib/queue.
    return tonumber(number)
  end
end

-- @part
-- Case part: nobody is in the queue and units are free: the caller takes some.
if ends and used and used + units <= tonumber(capacity) and told_ticket == '0' and not own and not grace_left and number <= begin_by then
  local last, lasts = call('HGET', record, 'last') or '', lease + kept
  local left = is_idle and 0 or call('EXISTS', waiters) == 0 and call('PTTL', lock)
  if last < number and left and left >= 0 then
    call('ZADD', ends, 'XX', '0', 'nobody') -- A full server refuses the first write, or none.
    call('PEXPIRE', record, '96400000')
    call('HSET', record, 'last', number)
    if last == '' then call('PEXPIRE', record, '96400000') end
    call('ZADD', ends, text(now + lasts), member)
    call('HSET', lock, 'mode', capacity, 'used', used + units, member, hold_text(units, number, '1', '0', label))
    if left < lasts + 1000 then
      local keep = text(lasts + 1000)
      call('PEXPIRE', lock, keep)
      call('PEXPIRE', ends, keep)
    end
    return tonumber(number)
  end
end

-- @part
-- Case busy: all units are taken by others, and the caller neither waits nor stands in the queue: it is told when to try again.
if is_full and not waits and not own and not call('HGET', record, member) then
  return { 'busy', first_end and end_of(first_end) - now or math.max(-1, call('PTTL', lock)), 0 }
end

-- @part
-- Case queue: fewer units are free than the caller or the first waiter asks for: the caller joins the queue.
if used and waits and told_ticket == '0' and not own and not grace_left and number <= begin_by then
  local head = not is_full and call('ZRANGE', waiters, '0', '0')[1]
  local texts, rank = call('HMGET', record, 'last', 'queue', member, head or 'nobody'), call('ZCARD', waiters)
  local served, pulse, clock, least, rests = read_numbers(texts[2])
  clock = clock_at(pulse, clock, rank > 0 and least)
  local place = head and clock >= tonumber(rests) and read_place(head, texts[4])
  local is_behind = place and place.capacity == capacity and used + place.units > tonumber(capacity)
    and place.deadline - clock > math.max(least, ttl) / 2 -- The least TTL may grow in the lines below, up to this waiter's.
  local has_to_wait = is_full or is_behind or not head and used + units > tonumber(capacity)
  -- A number may be below tickets of the queue if the record was lost alone: then the rule decides.
  local is_next = (texts[1] or rank == 0 and '' or number) < number
  if has_to_wait and is_next and not texts[3] then
    local left = first_end and end_of(first_end) - now or call('PTTL', lock)
    if rank == 0 then pulse, least, rests = nil, ttl, '0' end
    if now - (pulse or now) > least / 2 then least = text(2 * (now - pulse)) end -- See `hear`.
    if tonumber(ttl) < tonumber(least) then least = ttl end
    local keep = keep_anew(waiters, pulse, ttl)
    call('ZADD', waiters, 'XX', '0', 'nobody') -- A full server refuses the first write, or none.
    local is_new = keep and call('PEXPIRE', record, keep) == 0
    call('HSET', record, 'last', number, 'queue', queue_text(served, since, text(clock), least, rests),
      member, place_text(units, capacity, number, text(clock + ttl), lease, string.find(options, 'd', 1, true) and 'dn' or '-n', label))
    call('ZADD', waiters, number, member)
    if keep then call('PEXPIRE', waiters, keep) end
    if is_new then call('PEXPIRE', record, keep) end
    return { rank, look_after(left, rank, tonumber(ttl), capacity == '1'), number, number, 0 }
  end
end
