-- Reads a lock's keys as stored, and the pushes.
-- KEYS: lock, line, places, sequence
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ends = {}
for index, key in ipairs({ lock, line, places, sequence }) do
  local left = redis.call('PTTL', key)
  ends[index] = left < 0 and left or left + tonumber(redis.call('GET', 'virtual:clock'))
end
return {
  redis.call('HGETALL', lock), redis.call('ZRANGE', line, 0, -1, 'WITHSCORES'), redis.call('HGETALL', places),
  redis.call('HGETALL', sequence), ends,
}
