-- What clients are told. Messages come after all writes: nothing depends on a message.

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
