-- The owner in the lock's hash: field = owner, value = hold count, as Redisson writes it. The hand-off adds a field
-- `fairlock`, which names no owner and may come before or after the owner's.
local function owner_in(lock)
  local fields = redis.call('HGETALL', lock)
  for index = 1, #fields, 2 do
    if fields[index] ~= 'fairlock' then return fields[index], fields[index + 1] end
  end
end
