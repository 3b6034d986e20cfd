-- Tells the clients concerned by a plan. Comes after all writes, and under `pcall`, since nothing depends on a message.
-- @include lib/text: text
-- @include format/member: split_member
-- @include lib/present: CLIENT_PREFIX
-- @include lib/channels: wake_plain

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
