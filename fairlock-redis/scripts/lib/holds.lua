-- Who holds the lock. Its hash has `mode`, the lock's capacity in units: what the last grant named, or after a reclaim the greatest that was
-- named; `used`, how many units are taken, unless the capacity is 1; and a field for each hold.
--
-- A lock of one unit ends as its key does: the time to live is the lease. Of a lock of more units the sorted set `ends` has the
-- end of each hold (ms of the server's clock). A hold whose end has come is over, whether it was dropped or not. Both keys end a
-- second after the last hold that was granted.
--
-- `mode` has Redisson's name: Redisson's read-write lock walks into a hash without this field. A hash without it, or with another's
-- value, is a foreign holder of one unit: Redisson's (Java's, or ours of disciplines Redisson and plain).

-- @part
-- @include lib/clock: now
-- @include lib/format: int, end_of, read_hold, read_last_grant
-- @include lib/holds: last_end, is_alike
-- @include lib/holders: read_holder, mismatch, not_exclusive

-- How many holds that are over one script drops. Until all are dropped too many units count as used, never too few, and the lock
-- keeps their capacity.
local MOST_OVER = 128

-- Reads the holds, and the field of one member. Writes nothing.
local function read_holds(member)
  local fields = redis.call('HMGET', lock, 'mode', 'used', member)
  local capacity = int(fields[1])
  local used = capacity == 1 and 1 or int(fields[2]) or 0
  local holds = { capacity = capacity, used = used, own = fields[3] or nil, over = {} }
  if not holds.capacity and redis.call('EXISTS', lock) == 1 then
    holds.is_foreign, holds.capacity, holds.used = true, 1, 1
  end
  if not ends or holds.capacity == 1 then return holds end
  local first = redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2]
  holds.first_end = first and end_of(first)
  local is_over = first and holds.first_end <= now
  if (holds.capacity ~= nil) ~= (first ~= nil) or is_over and last_end(ends) <= now then
    -- One key was evicted or deleted, and the other alone can't tell who holds what; or all holds are over. What is there counts for
    -- nothing, and `write` deletes it.
    return { is_torn = true, used = 0, over = {} }
  elseif is_over then
    holds.over = redis.call('ZRANGE', ends, '-inf', now, 'BYSCORE', 'LIMIT', '0', MOST_OVER)
    holds.more_over = #holds.over == MOST_OVER
  end
  return holds
end

-- The hold of a member, unless it is over: units, token, and the rest of its time (ms; -1: without an end).
local function hold_of(holds, member, field)
  local units, token = read_hold(field)
  if not token or holds.is_foreign or holds.is_torn then return nil end
  if not holds.first_end then return { units = units, token = token, left = redis.call('PTTL', lock) } end
  local score = redis.call('ZSCORE', ends, member)
  local left = score and end_of(score) - now
  if left and left > 0 then return { units = units, token = token, left = left } end
  -- This hold is dropped with the others, however many they are.
  for _, other in ipairs(holds.over) do
    if other == member then return nil end
  end
  holds.over[#holds.over + 1] = member
end

-- How long the hold that ends first lasts (ms); -1 for a hold without an end, nil without a hold.
local function first_left(holds)
  if not holds.capacity then return nil end
  if holds.capacity == 1 or not ends then return redis.call('PTTL', lock) end
  local first = redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2]
  return first and end_of(first) - now
end

-- The error for a name that is no lock, or is held as another kind of lock. Holds that are over do not count.
local function refusal(holds, capacity)
  local refused = holds.is_foreign and not_exclusive(read_holder(lock, read_last_grant(record)))
  return refused or holds.capacity and not is_alike(holds.capacity, capacity) and mismatch(holds.capacity) or nil
end

-- @part
-- Whether locks of these capacities may have one name: equal ones, or two semaphores of several permits, of which each client goes by
-- its own number.
local function is_alike(one, other)
  return one == other or math.min(one, other) > 1 and math.max(one, other) < 4294967295
end

-- @part
-- How long the keys of a lock of several units live.
-- @include lib/clock: now
-- @include lib/format: end_of

local function last_end(ends)
  return end_of(redis.call('ZRANGE', ends, '0', '0', 'REV', 'WITHSCORES')[2])
end

-- Both keys live until a second after the last hold's end, or as long as before. So a key that was made endless by hand ends, too.
local function keep_keys(lock, ends, last)
  local keep = math.max(redis.call('PTTL', lock), last - now + 1000)
  redis.call('PEXPIRE', lock, keep)
  redis.call('PEXPIRE', ends, keep)
end

-- @part
-- @include lib/clock: now, text
-- @include lib/holds: last_end, keep_keys
-- @include lib/format: hold_text, read_hold

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

-- @part
-- @include lib/holds: renew

-- The rest of a hold's lease, for a holder that asks again. The lease is not raised: a late repeat must neither shorten nor
-- prolong it. Two exceptions: a hold that was made endless by hand (PERSIST), and a kept hold, get a new end.
local function lease_left(hold, member, lease)
  if hold.left >= kept then return hold.left - kept end
  renew(lock, ends, member, hold.token, nil, lease + kept)
  return lease
end
