-- Case: when fewer units are free than the caller asks for, or than the first waiter does, the caller joins the queue.
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
