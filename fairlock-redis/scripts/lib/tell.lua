-- What clients are told: messages, and in a reply when a waiter looks by itself and a caller that does not wait tries again. Messages come
-- after all writes: nothing depends on a message.

-- @part
-- @include lib/clock: text
-- @include lib/format: split_member
-- @include lib/queue: CLIENT_PREFIX
-- @include lib/tell: wake_plain, publish

-- Waiters that ask in this script get a reply instead. If the lock is free after this script, no waiter of the queue can have it: so
-- waiters of plain locks and Redisson's waiters are told.
local function tell(holds, plan)
  for _, it in ipairs(plan.grants) do
    if not plan.heard[it.member] then
      local client = split_member(it.member)
      publish(CLIENT_PREFIX .. client, 'granted ' .. it.member .. ' ' .. text(it.token) .. ' ' .. lock)
    end
  end
  if plan.next and not plan.heard[plan.next] then
    local client, number = split_member(plan.next)
    publish(CLIENT_PREFIX .. client, 'look ' .. number .. ' ' .. lock)
  end
  if #plan.drops > 0 and not holds.capacity and not ends then wake_plain() end
end

-- @part
-- Redisson's channel for a lock. A message says that the lock may be free: to Redisson's waiters, and to ours of plain locks.
-- @include lib/tell: publish

local function wake_plain()
  publish('redisson_lock__channel:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'), '0')
end

-- @part
-- Sends a message. Stands in front of a script, behind its life. Where scripts may not publish (a right is missing, or the service
-- refuses PUBLISH in scripts), `untold` lists why, and then each channel and message. The reply takes them along, and the client
-- sends them.
local untold
local function publish(channel, message)
  local sent = redis.pcall('PUBLISH', channel, message)
  if type(sent) == 'table' then
    untold = untold or { sent.err }
    untold[#untold + 1] = channel
    untold[#untold + 1] = message
  end
end

-- @part
-- @include lib/holds: first_left
-- @include lib/queue: is_resting
-- @include lib/tell: look_after

-- Redisson tells its own waiters of the end of a hold, but not ours: beside a foreign holder our first waiter looks so often (ms).
local POLL_EVERY = 500

-- 1 if units stay free only because one script may not examine the whole queue, or drop all holds that are over.
local function more_to_do(holds, plan)
  return (plan.more_to_scan or holds.more_over) and 1 or 0
end

-- When a caller that does not wait may try again.
local function busy_for(holds)
  return math.max(-1, first_left(holds) or grace_left or 0)
end

-- When a waiter that names this capacity looks by itself, in any state. While the queue rests: after that.
local function look_in(holds, queue, plan, rank, ttl, capacity)
  local is_free = not holds.capacity or holds.used < capacity
  if is_free and grace_left then return grace_left end
  local left = first_left(holds)
  if is_free and is_resting(queue) then
    return rank > 0 and left and 3 * left >= ttl and -1 or queue.rests - queue.clock
  end
  local goes_on = plan.more_to_scan or plan.is_restored and is_free or plan.next and rank == 0
  if not holds.capacity or holds.more_over or goes_on then return 0 end
  if holds.is_foreign and rank == 0 then return left >= 0 and math.min(left + 1, POLL_EVERY) or POLL_EVERY end
  return look_after(left, rank, ttl, holds.capacity == 1)
end

-- @part
-- A waiter for a lock of several units looks at the end of a hold no more often (ms).
local LOOK_EVERY = 50

-- In how many ms a waiter looks without a push; `left`: how long the hold that ends first lasts. -1: never, since its next heartbeat
-- comes before that hold ends. The first in the queue always looks. Others look since all waiters ahead may have died with the holder.
local function look_after(left, rank, ttl, is_of_one)
  if not left or left < 0 or rank > 0 and 3 * left >= ttl then return -1 end
  return is_of_one and left + 1 or math.max(LOOK_EVERY, left + 1)
end
