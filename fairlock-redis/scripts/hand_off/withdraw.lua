-- Leaves the queue, and grants the lock to all at the head whose units are free.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: member, capacity, options (see acquire)
-- Returns: {left, 1 if there is more to do} | {was_granted, token, lease left ms}
-- Effects: ticket and place removed; holds that are over are dropped; a push to each new holder
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, capacity, options = ARGV[1], tonumber(ARGV[2]), ARGV[3]
-- @include lib/format: newer
-- @include case/hold: layout
-- @include lib/holds: read_holds, hold_of
-- @include lib/queue: read_queue
-- @include lib/rule: new_plan, drop, hand_on
-- @include lib/write: write
-- @include lib/tell: tell, more_to_do

local holds, queue, plan = read_holds(member), read_queue(member), new_plan()
local hold = hold_of(holds, member, holds.own)
if hold and grace_left then return in_grace() end
if hold then return { 'was_granted', hold.token, math.max(0, hold.left - kept) } end
if not queue.head and not queue.own and #holds.over == 0 then return { 'left', 0 } end

drop(holds, plan, holds.over)
plan.heard[member] = 'gone'
plan.leaves[1] = member
hand_on(holds, queue, plan, capacity)
write(holds, queue, plan)
tell(holds, plan)
return { 'left', more_to_do(holds, plan) }
