-- Who stands in the lock's hash: field = owner, value = hold count, as Redisson writes it. The hand-off has a field
-- `fairlock` beside it, which names no owner, and may come before or after him.
local function owner_in(lock)
  local fields = redis.call('HGETALL', lock)
  for at = 1, #fields, 2 do
    if fields[at] ~= 'fairlock' then return fields[at], fields[at + 1] end
  end
end
