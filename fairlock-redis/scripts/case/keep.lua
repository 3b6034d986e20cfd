-- Cases that leave holders and waiters as they are. A case uses the locals of its script.

-- @part
-- Case raise: the leases of locks of one unit grow and the counts stay: one command raises each. (GT came with Redis 7, as this number.)
if step == 1 and not count and redis.REDIS_VERSION_NUM then
  local left = #KEYS
  for at, lock in ipairs(KEYS) do
    local hold, named = redis.pcall('HGET', lock, ARGV[2 + 2 * at]), '1 ' .. ARGV[3 + 2 * at] .. ' '
    renewed[at] = type(hold) == 'string' and string.find(hold, named, 1, true) == 1 and redis.pcall('PEXPIRE', lock, lasts, 'GT') == 1
    if renewed[at] then left = left - 1 end
  end
  if left == 0 then return { 'renewed' } end
end

-- @part
-- Case layout: a later version has written the lock or its record: this version refuses, and changes nothing.
local is_newer = newer(redis.call('HGET', lock, 'mode')) or newer(redis.call('HGET', record, 'last'))
if is_newer then return is_newer end
