-- Case: when a lock of one unit is free and nobody is in the queue, the caller takes it.
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
