-- Who holds the lock. Its hash has `mode`, the lock's capacity in units; `used`, how many are taken, unless it is 1;
-- and a field for each hold.
--
-- A lock of one unit ends as its key does: the time to live is the lease. Of a lock of more units the sorted set `ends` has the
-- end of each hold (ms of the server's clock). A hold whose end has come is over, whether it was dropped or not. Both keys end a
-- second after the last hold that was granted.
--
-- `mode` has Redisson's name: Redisson's read-write lock walks into a hash without this field. A hash without it, or with another's
-- value, is a foreign holder of one unit: Redisson's (Java's, or ours of disciplines Redisson and plain).
-- @include lib/clock: now
-- @include lib/numbers: int, end_of
-- @include lib/ends: last_end
-- @include format/hold: read_hold
-- @include format/grant: read_last_grant
-- @include lib/owner: read_holder, mismatch, not_exclusive

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

-- The error for a name that is no lock, or is held with another capacity. Holds that are over do not count.
local function refusal(holds, capacity)
  local refused = holds.is_foreign and not_exclusive(read_holder(lock, read_last_grant(record)))
  return refused or holds.capacity and holds.capacity ~= capacity and mismatch(holds.capacity) or nil
end
