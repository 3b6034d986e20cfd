-- Renews a hold.
-- @include lib/clock: now
-- @include lib/numbers: text, end_of
-- @include format/hold: hold_text, read_hold

-- Returns whether the member holds by this token. Without `count` and `heard` these stay as they are.
--
-- A late renewal shortens nothing. But when the server's clock is set back, every lease grows by as much, and the lock of a
-- dead holder would stay that long. Nothing else makes a lease longer than two of them and a minute.
--
-- PEXPIRE comes first: a full server never refuses it, and so takes what follows.
local function renew(lock, ends, member, token, count, lease, heard)
  local field = redis.call('HGET', lock, member)
  local units, held_token, held_count, held_heard, label = read_hold(field)
  if held_token ~= token then return false end
  local score = ends and redis.call('ZSCORE', ends, member)
  if ends and (not score or tonumber(score) <= now) then return false end
  local key_left, keep = redis.call('PTTL', lock), ends and lease + 1000 or lease
  local left = score and tonumber(score) - now or key_left
  local is_new_end, is_lasting = left < lease or left > 2 * lease + 60000, key_left >= keep
  if ends and key_left < 0 then
    -- Made endless by hand: it ends with the last hold.
    keep = math.max(keep, end_of(redis.call('ZRANGE', ends, '0', '0', 'REV', 'WITHSCORES')[2]) - now + 1000)
  end

  count, heard = count or held_count, heard or held_heard
  local is_new = count ~= held_count or heard ~= held_heard
  -- These change nothing, see lib/write.
  if is_new or ends and is_new_end then redis.call('PEXPIRE', lock, key_left < 0 and keep or math.max(1, key_left)) end
  if is_new and ends then redis.call('ZADD', ends, 'XX', '0', 'nobody') end
  if is_new then redis.call('HSET', lock, member, hold_text(units, text(token), count, heard, label)) end
  if ends and is_new_end then redis.call('ZADD', ends, now + lease, member) end
  if not is_lasting or is_new_end and not ends then
    redis.call('PEXPIRE', lock, keep)
    if ends then redis.call('PEXPIRE', ends, keep) end
  end
  return true
end
