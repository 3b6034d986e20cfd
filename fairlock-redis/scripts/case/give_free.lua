-- Case: when a lock of one unit is released and nobody is in the queue, it is free.
if first == nil and not ends and string.find(call('HGET', lock, member) or '', named, 1, true) == 1 then
  call('DEL', lock)
  wake_plain()
  return 0
end
