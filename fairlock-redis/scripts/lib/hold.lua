-- Renews a hold.
-- @include lib/clock: now
-- @include lib/text: text
-- @include lib/ends: last_end, keep_keys
-- @include format/hold: hold_text, read_hold

-- Returns whether the member holds the lock by this token. Without `count` and `heard` these two fields stay as they are.
--
-- A late renewal shortens nothing. But when the server's clock is set back, every lease grows by as much, and the lock of a dead
-- holder would stay that long. So a lease longer than two leases and a minute is shortened: nothing else makes it so long.
--
-- PEXPIRE comes first: a full server never refuses it, and then accepts what follows.
local function renew(lock, ends, member, token, count, lease, heard)
  local units, held_token, held_count, held_heard, label = read_hold(redis.call('HGET', lock, member))
  if held_token ~= token then return false end
  local key_left, score = redis.call('PTTL', lock), ends and tonumber(redis.call('ZSCORE', ends, member))
  if ends and (not score or score <= now) then return false end
  local left = ends and score - now or key_left
  local last, is_new_end = ends and math.max(last_end(ends), now + lease), left < lease or left > 2 * lease + 60000

  count, heard = count or held_count, heard or held_heard
  local is_new = count ~= held_count or heard ~= held_heard
  -- These change nothing, see lib/write.
  if is_new or ends and is_new_end then redis.call('PEXPIRE', lock, key_left < 0 and lease or math.max(1, key_left)) end
  if is_new and ends then redis.call('ZADD', ends, 'XX', '0', 'nobody') end
  if is_new then redis.call('HSET', lock, member, hold_text(units, text(token), count, heard, label)) end
  if ends and is_new_end then redis.call('ZADD', ends, now + lease, member) end
  if ends and key_left < lease + 1000 then keep_keys(lock, ends, last) end
  if not ends and is_new_end then redis.call('PEXPIRE', lock, lease) end
  return true
end
