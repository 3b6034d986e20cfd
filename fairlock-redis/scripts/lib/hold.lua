-- Renews the hold `<capacity> <member> <token> ` (see lib/holds), and sets its count unless that is empty. A part gets the mark
-- `heard` behind its count, or keeps the one it has. Returns whether it is held.
--
-- A late renewal shortens nothing. But when the server's clock is set back, every lease grows by as much, and the lock of a
-- dead holder would stay that long. Nothing else makes a lease longer than two of them and a minute.
--
-- PEXPIRE comes first: a full server never refuses it, and so takes what follows.
-- @include lib/clock: now, format_int
local function renew(lock, ends, hold, count, lease, heard)
  lease = tonumber(lease)
  local mode = redis.call('HGET', lock, 'mode') or ''
  local left = redis.call('PTTL', lock)
  if string.find(mode, hold, 1, true) == 1 then
    local held_count, rest = string.match(mode, '^(%d+)(.*)$', #hold + 1)
    -- It changes nothing if the right to HSET is missing.
    if count ~= '' and held_count ~= count then
      redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
      redis.call('HSET', lock, 'mode', hold .. count .. (rest or ' '))
    end
    if left < lease or left > 2 * lease + 60000 then redis.call('PEXPIRE', lock, lease) end
    return true
  end
  if not ends or string.sub(mode, 1, 3) ~= 'of ' then return false end
  local member, token = string.match(hold, '^%d+ (.*) (%d+) $')
  local until_when = tonumber(redis.call('ZSCORE', ends, member) or 0)
  local takes, held_token, held_count, mark, rest =
    string.match(redis.call('HGET', lock, member) or '', '^(%d+) (%d+) (%d+)(@?%d*)(.*)$')
  if held_token ~= token or until_when <= now then return false end
  local keep = lease + 1000
  if left < 0 then
    -- Made endless by hand: it ends with the last hold.
    local last = redis.call('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES')[2]
    keep = math.max(keep, math.min(tonumber(last), 4503599627370496) - now + 1000)
  end
  -- Changes nothing, as the first ZADD.
  redis.call('PEXPIRE', lock, left < 0 and format_int(keep) or math.max(1, left))
  if count == '' then count = held_count end
  if held_count ~= count or (heard or mark) ~= mark then
    redis.call('ZADD', ends, 'XX', 0, '-')
    redis.call('HSET', lock, member, takes .. ' ' .. token .. ' ' .. count .. (heard or mark) .. rest)
  end
  if until_when < now + lease or until_when > now + 2 * lease + 60000 then
    redis.call('ZADD', ends, format_int(now + lease), member)
  end
  if left < keep then
    redis.call('PEXPIRE', lock, format_int(keep))
    redis.call('PEXPIRE', ends, format_int(keep))
  end
  return true
end
