-- Case: when nobody is in the queue, the units that are released are free.
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
