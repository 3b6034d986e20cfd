-- Leaves the line, and grants the lock to all at the head whose units are free. On an operator's order, the place is not restored.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: member, options (see lib/line), whether an operator kicks it (1 or 0)
-- Returns: {left, 1 if there is more to do} | {was_granted, token, lease left ms}
-- Effects: ticket and place removed; holds that are over are dropped; the kicked member; a push to each new holder
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, options, is_kick = ARGV[1], ARGV[2], ARGV[3]
-- @include lib/clock: now
-- @include lib/line: remove_place, remove_leftover, kicked_with
-- @include lib/holds: open_lock, hold_of, begin, drop, hand_on, settle, push, more_to_do

local state = open_lock(lock, line, record, ends, nil, options)
local hold = hold_of(state, member)
if hold and grace_left then return in_grace() end
if hold then return { 'was_granted', hold.token, math.max(0, (hold.ends and hold.ends - now or state.left) - kept) } end
if state.length == 0 and #state.over == 0 then
  remove_leftover(state, member)
  return { 'left', 0 }
end
begin(state, false, unpack(is_kick == '1' and state.length > 0 and { 'kicked', kicked_with(state, member) } or {}))
drop(state, state.over)
-- It may have been the one that did not fit.
remove_place(state, member)
hand_on(state)
settle(state)
push(state)
return { 'left', more_to_do(state) }
