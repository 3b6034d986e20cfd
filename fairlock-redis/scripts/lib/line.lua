-- Redisson's line: a list of owners, and a sorted set of the times after which each counts as dead.

-- How many dead places one call removes at the most.
local MOST_DEAD = 128

-- Removes the dead from the head of the line; returns who is first then, and how many were removed. An owner
-- without a time can never die, and keeps the line for ever: it is removed too.
local function drop_dead(queue, timeouts)
  local dropped = 0
  local first = redis.call('LINDEX', queue, 0)
  while first and dropped < MOST_DEAD do
    local score = redis.call('ZSCORE', timeouts, first)
    if score and tonumber(score) > now then break end
    redis.call('LPOP', queue)
    redis.call('ZREM', timeouts, first)
    dropped = dropped + 1
    first = redis.call('LINDEX', queue, 0)
  end
  return first, dropped
end

-- Takes back what one waiter had added to the times of those behind him. It never takes a time below `floor` from
-- now, so that a live waiter's next heartbeat is in time to raise it again.
local function move_up(timeouts, members, from, wait, floor)
  local lowest = now + tonumber(floor)
  for at = from, #members do
    local score = tonumber(redis.call('ZSCORE', timeouts, members[at]))
    if score then
      local moved = math.max(score - tonumber(wait), math.min(score, lowest))
      if moved ~= score then redis.call('ZADD', timeouts, whole(moved), members[at]) end
    end
  end
end

-- Puts `owner` at the end of the line: his time is that of the last one (or the end of the lease) and his wait.
local function enqueue(lock, queue, timeouts, owner, wait)
  local last = redis.call('LINDEX', queue, -1)
  local score = last and last ~= owner and redis.call('ZSCORE', timeouts, last)
  local ends = score and tonumber(score) or now + math.max(0, redis.call('PTTL', lock))
  redis.call('RPUSH', queue, owner)
  redis.call('ZADD', timeouts, whole(ends + tonumber(wait)), owner)
end

-- Tells the first in line that the lock may be free.
local function tell(channel, first)
  if first then redis.pcall('PUBLISH', channel .. ':' .. first, '0') end
end

-- When the first in line should look without being told: when the hold is over. Nobody else needs to.
local function look_in(lock, rank)
  if rank > 0 then return -1 end
  local left = redis.call('PTTL', lock)
  if left == -2 then return 0 end
  return left < 0 and -1 or left + 1
end
