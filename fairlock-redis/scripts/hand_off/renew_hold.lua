-- uses: nothing
-- Renews a hold's lease and sets its count. It needs the lock's key alone.
-- KEYS: lock (Keys::lock)
-- ARGV: owner, request, token, count, lease (ms)
-- Returns: {renewed} | {lost}
-- Effects: the lease is raised, and shortened only after a clock that was set back; the count is set
local lock = KEYS[1]
local owner, request, token, count, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local held = redis.call('HMGET', lock, owner, 'fairlock')
if not held[1] or held[2] ~= owner .. ':' .. request .. ' ' .. token then return { 'lost' } end
-- PEXPIRE comes first: a full server never refuses it, and it changes nothing if the right to HSET is missing.
local left = redis.call('PTTL', lock)
if held[1] ~= count then
  redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
  redis.call('HSET', lock, owner, count)
end
-- A late renewal shortens nothing. But when the server's clock is set back, every lease grows by as much, and the lock of a
-- dead holder would stay for so long. Nothing else makes a lease longer than two of them and a minute.
if left < tonumber(lease) or left > 2 * tonumber(lease) + 60000 then redis.call('PEXPIRE', lock, lease) end
return { 'renewed' }
