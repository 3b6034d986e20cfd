-- Leaves the queue, and grants the lock to all at the head whose units are free. On an operator's order a waiter goes to the tail.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: member, capacity, options (see acquire), whether an operator kicks it (1 or 0)
-- Returns: {left, 1 if there is more to do} | {was_granted, token, lease left ms}
-- Effects: ticket and place removed, or new ones; holds that are over are dropped; a push to each new holder
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, capacity, options, is_kick = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
-- @include lib/format: newer
-- @include case/newer: -
-- @include lib/format: read_place
-- @include lib/holds: read_holds, hold_of
-- @include lib/queue: read_queue
-- @include lib/plan: new_plan, drop, join, keep_place
-- @include lib/rule: hand_on
-- @include lib/write: write
-- @include lib/tell: tell
-- @include lib/look: more_to_do

local holds, queue, plan = read_holds(member), read_queue(member), new_plan()
local hold = hold_of(holds, member, holds.own)
if hold and grace_left then return in_grace() end
if hold then return { 'was_granted', hold.token, math.max(0, hold.left - kept) } end
if not queue.head and not queue.own and #holds.over == 0 then return { 'left', 0 } end

drop(holds, plan, holds.over)
local place = is_kick and queue.own and redis.call('ZRANK', waiters, member) and read_place(member, queue.own)
plan.heard[member] = 'gone'
if not place then plan.leaves[1] = member end
hand_on(holds, queue, plan, capacity)
if place then
  join(queue, plan, member, place)
  keep_place(plan, member, place)
  -- The waiter is told to ask, since its client does not know the new ticket.
  plan.heard, plan.next = {}, plan.next or member
end
write(holds, queue, plan)
tell(holds, plan)
return { 'left', more_to_do(holds, plan) }
