-- Case: when nobody is in line and units are free, the caller takes some.
if ends and told_ticket == '0' and not own and not grace_left and number <= begin_by then
  local last, lasts = call('HGET', record, 'last') or '', lease + kept
  local is_beside = mode == capacity and first_end and tonumber(first_end) > now and (tonumber(used) or capacity) + units <= tonumber(capacity)
  local left = is_beside and call('EXISTS', line) == 0 and call('PTTL', lock) or is_idle and not first_end and 0
  if last < number and left and left >= 0 then
    call('ZADD', ends, 'XX', '0', 'nobody') -- A full server refuses the first write, or none.
    call('PEXPIRE', record, '96400000')
    call('HSET', record, 'last', number)
    if last == '' then call('PEXPIRE', record, '96400000') end
    call('ZADD', ends, now + lasts, member)
    call('HSET', lock, 'mode', capacity, 'used', (used or 0) + units, member, hold_text(units, number, '1', '0', label))
    if left < lasts + 1000 then
      call('PEXPIRE', lock, lasts + 1000)
      call('PEXPIRE', ends, lasts + 1000)
    end
    return micros
  end
end
