-- uses: lib/clock lib/places lib/hand_off
-- Leaves the line, and hands the lock on if it is free. On an operator's order, the place is not restored.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: member, options (see lib/places), whether an operator kicks it (1 or 0)
-- Returns: {left, 1 if there is more of the line to scan} | {was_granted, token, lease left ms}
-- Effects: ticket and place removed; the lock is handed on if it is free; in the sequence, the kicked member
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, options, is_kick = ARGV[1], ARGV[2], ARGV[3]

local holder, token = parse_hold(redis.call('HGET', lock, 'fairlock'))
--life: if holder == member and grace_left then return in_grace() end
if holder == member then
  local left = redis.call('PTTL', lock)
  --life: left = left - kept
  return { 'was_granted', tonumber(token), math.max(0, left) }
end
local state = open_line(lock, line, places, sequence, nil, options)
if state.length == 0 then return { 'left', 0 } end
local free = not holder and is_free(lock)
probe_rights(state, 'waiter')
if is_kick == '1' then
  save(state, 'kicked', kicked_with(state, member))
elseif free then
  save(state)
end
remove_place(state, member)
state.head = nil -- it may have been this member
if free then
  hand_on(state)
  push(state)
end
return { 'left', more_to_scan(state) }
