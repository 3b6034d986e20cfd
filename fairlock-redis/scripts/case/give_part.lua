-- Case: when nobody is in line, the units that are released are free.
if first == nil and ends then
  local fields = call('HMGET', lock, 'used', member)
  local is_held = tonumber(fields[1]) and string.find(fields[2] or '', named, 1, true) == 1
  local first_end = is_held and call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2]
  if first_end and tonumber(first_end) > now then
    if fields[1] == units then
      call('DEL', lock, ends)
      return 0
    end
    -- Tried without effect, since Redis undoes nothing.
    call('HDEL', lock, 'nobody')
    call('ZREM', ends, 'nobody')
    call('HSET', lock, 'used', math.max(0, fields[1] - units))
    call('HDEL', lock, member)
    call('ZREM', ends, member)
    return 0
  end
end
