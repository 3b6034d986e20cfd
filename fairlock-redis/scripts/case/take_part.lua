-- Case: when nobody is in the queue and units are free, the caller takes some.
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
