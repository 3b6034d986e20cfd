-- Heartbeat of one client's waiters; grants the lock to all waiters at the head whose units are free.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: ttl of the places (ms), options (see acquire), capacity, then for each place: member, lease (ms), ticket that the request was
--   told (0 if none)
-- Returns: a row for each place: {granted, token, lease left ms} | {waiting, rank, look again in ms or -1, last number} | {lost}
-- Effects: places live on, with their keys; holds that are over are dropped; sequence; a push to each new holder
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, options, capacity = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
-- @include lib/format: newer, read_place
-- @include case/hold: layout
-- @include lib/holds: read_holds, hold_of, refusal, lease_left
-- @include lib/queue: NOBODY, read_queue
-- @include lib/rule: new_plan, drop, hear, keep_place, hand_on
-- @include lib/write: write
-- @include lib/tell: tell, look_in

local holds, queue, plan = read_holds(NOBODY), read_queue(NOBODY), new_plan()
local rows, members, leases, tickets = {}, {}, {}, {}
for at = 4, #ARGV, 3 do
  members[#members + 1], leases[#leases + 1], tickets[#tickets + 1] = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
end
local fields = members[1] and redis.call('HMGET', lock, unpack(members)) or {}
local places = members[1] and redis.call('HMGET', record, unpack(members)) or {}
local is_other = refusal(holds, capacity)
for at, member in ipairs(members) do
  local hold, ticket = hold_of(holds, member, fields[at]), tickets[at]
  local place = not hold and not is_other and redis.call('ZRANK', waiters, member) and read_place(member, places[at])
  local is_it = place and tonumber(place.capacity) == capacity and (ticket == '0' or ticket == place.ticket)
  if hold and not grace_left then
    rows[at] = { 'granted', hold.token, lease_left(hold, member, leases[at]) }
  elseif not is_it then
    -- The heartbeat may be late: the request was granted the lock, or withdrawn. If the request still waits, its
    -- client asks again, and names its ticket.
    rows[at] = { 'lost' }
  else
    hear(queue, place, ttl, tonumber(ticket))
    place.lease, plan.heard[member] = leases[at], place
  end
end
if not next(plan.heard) and not queue.head and #holds.over == 0 then return rows end

drop(holds, plan, holds.over)
hand_on(holds, queue, plan, capacity)
for member, place in pairs(plan.heard) do keep_place(plan, member, place) end
write(holds, queue, plan)
tell(holds, plan)

local first
for at, member in ipairs(members) do
  local granted = plan.grants[member]
  if granted then
    rows[at] = { 'granted', granted.token, granted.lease }
  elseif not rows[at] then
    rows[at] = { 'waiting', redis.call('ZRANK', waiters, member), -1, queue.last }
    if not first or rows[at][2] < first[2] then first = rows[at] end
  end
end
if first then first[3] = look_in(holds, queue, plan, first[2], ttl, capacity) end
return rows
