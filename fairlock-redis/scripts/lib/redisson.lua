-- What disciplines Redisson and plain keep: the hold of an owner, and Redisson's queue.

-- @part
-- A hold of the disciplines Redisson and plain: the owner's field in the lock's hash, and the record of the last grant beside it.
--
-- A request never takes over its owner's hold under another request: nobody can know which of the two requests is late, and the
-- late one's lease may be shorter than what the holder believes. Nor does a request take over a hold whose record is missing or names
-- another owner: that hold ends by its own release, or with its lease.

-- Whether the owner holds the lock by this very request and token. A record that is missing (evicted, deleted) proves
-- nothing against it.
local function is_hold(held, last_grant, owner, request, token)
  local is_same = not last_grant[1] or last_grant[1] == owner and last_grant[2] == request
  return held and is_same and (last_grant[3] or token) == token
end

-- Whether this very request was granted the lock and still holds it.
local function is_granted(held, last_grant, owner, request)
  return held and last_grant[1] == owner and last_grant[2] == request
end

-- Answers the repeat of a granted request, whose first answer was lost, by the rest of the lease: a late repeat must neither shorten
-- nor prolong the lease. Only a hold that was made endless by hand (PERSIST) gets an end again. Nil if the request holds nothing.
local function granted_before(lock, held, last_grant, owner, request, lease)
  if not is_granted(held, last_grant, owner, request) then return nil end
  local left = redis.call('PTTL', lock)
  if left < 0 then redis.call('PEXPIRE', lock, lease) end
  return { 'granted', tonumber(last_grant[3]), left < 0 and tonumber(lease) or math.min(left, tonumber(lease)) }
end

-- @part
-- Redisson's queue: a list of owners, and a sorted set of the times after which these owners count as dead.
-- @include lib/clock: now
-- @include lib/tell: publish

-- How many dead waiters one call removes at most.
local MOST_DEAD = 128

-- Removes dead waiters from the head of the queue. Returns the first that remains, and how many were removed. An owner
-- without a time would never die and block the queue for ever, so it is removed, too. A plain lock has no queue.
local function drop_expired(queue, timeouts)
  if not queue then return nil, 0 end
  redis.call('ZCARD', timeouts) -- finds a key of another type even if the queue is empty
  local dropped = 0
  local first = redis.call('LINDEX', queue, 0)
  while first and dropped < MOST_DEAD do
    local timeout = redis.call('ZSCORE', timeouts, first)
    if timeout and tonumber(timeout) > now then break end
    redis.call('LPOP', queue)
    redis.call('ZREM', timeouts, first)
    dropped = dropped + 1
    first = redis.call('LINDEX', queue, 0)
  end
  return first, dropped
end

-- Subtracts what one waiter had added to the times of the waiters behind (`members` from this index on). No time falls below
-- `floor` from now: a live waiter's next heartbeat comes in time to raise its time again.
local function move_up(timeouts, members, from, wait, floor)
  local lowest = now + tonumber(floor)
  for index = from, #members do
    local timeout = tonumber(redis.call('ZSCORE', timeouts, members[index]))
    if timeout then
      local moved = math.max(timeout - tonumber(wait), math.min(timeout, lowest))
      if moved ~= timeout then redis.call('ZADD', timeouts, moved, members[index]) end
    end
  end
end

-- Tells the first in the queue, or all waiters for a plain lock, that the lock may be free.
local function wake_first(channel, queue, first)
  if first or not queue then publish(first and channel .. ':' .. first or channel, '0') end
end

-- When a waiter looks without a wake-up: the first when the hold ends, the others never (-1).
local function look_again_in(lock, rank)
  if rank > 0 then return -1 end
  local left = redis.call('PTTL', lock)
  return left == -1 and -1 or math.max(0, left + 1)
end
