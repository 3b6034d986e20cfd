-- Renews the hold `<owner>:<request> <token> ` of the hand-off, and sets its count unless that is empty. Returns whether it is
-- held.
local function renew(lock, hold, count, lease)
  local held = redis.call('HGET', lock, 'fairlock')
  if not held or string.find(held, hold, 1, true) ~= 1 then return false end
  local left = redis.call('PTTL', lock)
  local held_count, rest = string.match(held, '^(%d+)(.*)$', #hold + 1)
  -- PEXPIRE comes first: a full server never refuses it, and it changes nothing if the right to HSET is missing.
  if count ~= '' and held_count ~= count then
    redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
    redis.call('HSET', lock, 'fairlock', hold .. count .. (rest or ' -'))
  end
  -- A late renewal shortens nothing. But when the server's clock is set back, every lease grows by as much, and the lock of a
  -- dead holder would stay for so long. Nothing else makes a lease longer than two of them and a minute.
  if left < tonumber(lease) or left > 2 * tonumber(lease) + 60000 then redis.call('PEXPIRE', lock, lease) end
  return true
end

