-- Reads a lock's keys as stored, each by its type, and when each ends.
-- KEYS: hashes and sorted sets
local stored, ends = {}, {}
for index, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  ends[index] = left < 0 and left or left + tonumber(redis.call('GET', 'virtual:clock'))
  local is_hash = redis.call('TYPE', key).ok == 'hash'
  stored[index] = is_hash and redis.call('HGETALL', key) or redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
end
stored[#stored + 1] = ends
return stored
