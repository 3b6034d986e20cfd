-- Redisson 3.16.8's fair lock: releases it, and notifies the first in line.
-- KEYS: lock, queue, timeouts, channel. ARGV: message, lease (ms), owner, now (ms)
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then break end
  local timeout = tonumber(redis.call('zscore', KEYS[3], first))
  if timeout <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], first)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0 then
  local first = redis.call('lindex', KEYS[2], 0)
  if first ~= false then redis.call('publish', KEYS[4] .. ':' .. first, ARGV[1]) end
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
local first = redis.call('lindex', KEYS[2], 0)
if first ~= false then redis.call('publish', KEYS[4] .. ':' .. first, ARGV[1]) end
return 1
