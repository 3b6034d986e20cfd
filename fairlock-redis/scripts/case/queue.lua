-- Case: when all units are taken by others, the caller joins the queue.
if is_full and waits and told_ticket == '0' and not own and not grace_left and number <= begin_by then
  local fields, rank = call('HMGET', record, 'last', 'queue', member), call('ZCOUNT', line, '-inf', number)
  local served, pulse, clock, least, rests = read_numbers(fields[2])
  -- A record that was lost alone may give a number below all tickets of the queue: then the rule decides.
  local is_next = rank > 0 and (fields[1] or number) < number or (fields[1] or '') < number and call('ZCARD', line) == 0
  if is_next and not fields[3] then
    local left = first_end and first_end - now or call('PTTL', lock)
    clock = clock_at(pulse, clock, rank > 0 and least)
    if rank == 0 then pulse, least, rests = nil, ttl, '0' end
    if tonumber(ttl) < tonumber(least) or now - (pulse or now) > least / 2 then least = ttl end -- See `hear`.
    local keep, marks = keep_anew(line, pulse, ttl), string.find(options, 'd', 1, true) and 'dn' or 'n'
    call('ZADD', line, 'XX', '0', 'nobody') -- A full server refuses the first write, or none.
    local is_new = keep and call('PEXPIRE', record, keep) == 0
    call('HSET', record, 'last', number, 'queue', queue_text(served, since, text(clock), least, rests),
      member, place_text(units, capacity, number, text(clock + ttl), lease, marks, label))
    call('ZADD', line, number, member)
    if keep then call('PEXPIRE', line, keep) end
    if is_new then call('PEXPIRE', record, keep) end
    return { rank, look_after(left, rank, tonumber(ttl), capacity == '1'), micros, micros, 0 }
  end
end
