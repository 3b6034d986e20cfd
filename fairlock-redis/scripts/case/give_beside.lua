-- Case: when the first waiter needs more units than are free after the release, they stay free. (See `turn_of`.)
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
