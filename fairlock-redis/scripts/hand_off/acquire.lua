-- Takes units of the lock, or a place in the queue; grants the lock to all waiters at the head whose units are free.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: member, lease (ms), ttl of the place (ms), options (`w` it waits, `s` the server knows all subscribers, `u<time>` but for a
--   waiter with a smaller ticket, `d` the client is deaf), label, units, capacity, until when it may begin (see lib/clock), the
--   ticket that the request was told, or 0, perhaps a condition for newcomers: `e<period>` or `a<time>` not granted since the last multiple
--   of it, or so long ago (microseconds; without `w`); `q<number>` at most so many ahead in the queue (with `w`)
-- Returns: token, if granted for the lease that was asked | {granted, token, lease left ms} | {busy, ms or -1, 1 if there is more to
--   do} | [rank, look again in ms or -1, ticket, last number, 1 if a foreign holder has the lock] |
--   {declined, `granted`, when (microseconds)} | {declined, `ahead`, how many}
-- Effects: holds that are over are dropped; a hold; or ticket and place, with a time to live; sequence; note; a push to each new holder
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, lease, ttl, options, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local units, capacity, begin_by, told_ticket, condition = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local call = redis.call
-- @include lib/clock: number, since, now
-- @include lib/format: hold_text
local is_idle, fields, first_end = not condition and call('EXISTS', lock, waiters, ends or lock) == 0, {}, nil
-- @include case/take: free
if not is_idle then fields, first_end = call('HMGET', lock, 'mode', 'used', member), ends and call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2] end
-- How many units are taken, if no hold is over. All further cases need that; no case knows of conditions.
local own, used = fields[3], is_idle and 0
  or fields[1] == capacity and (not ends and 1 or first_end and tonumber(first_end) > now and tonumber(fields[2]))
if used and (condition or used < 0 or used > 4294967295) then used = nil end -- Another program's number, which the rule reads.
-- @include lib/clock: text
-- @include lib/format: end_of
-- @include case/take: part
local waits, is_full = string.find(options, 'w', 1, true), used == tonumber(capacity)
-- @include case/take: busy
-- @include lib/format: queue_text, read_numbers, place_text, read_place
-- @include lib/queue: clock_at, keep_anew
-- @include lib/tell: look_after
-- @include case/take: queue

-- All else.
-- @include lib/format: newer
-- @include case/hold: layout
-- @include lib/clock: late
-- @include lib/holds: is_alike, read_holds, hold_of, refusal, lease_left
-- @include lib/queue: read_queue, may_restore, note_ask, write_note
-- @include lib/rule: new_plan, drop, grant, hear, join_behind, restore, keep_place, hand_on
-- @include lib/write: write
-- @include lib/tell: tell, more_to_do, busy_for, look_in
-- @include lib/holders: mismatch

local kind, limit = string.match(condition or '', '^(%l)(%d+)$')

local function by_rule()
  lease, ttl, units, capacity, told_ticket = tonumber(lease), tonumber(ttl), tonumber(units), tonumber(capacity), tonumber(told_ticket)
  local holds = read_holds(member)
  local refused = refusal(holds, capacity)
  if refused then return refused end
  local hold = hold_of(holds, member, holds.own)
  if hold and grace_left then return in_grace() end
  -- A repeat after a lost answer or a lost push. A hold of this owner under another request does not matter: nobody can know here
  -- which of the two requests is late.
  if hold then return { 'granted', hold.token, lease_left(hold, member, lease) } end

  local queue, plan = read_queue(member), new_plan()
  local place = queue.head and queue.own and redis.call('ZRANK', waiters, member) and read_place(member, queue.own)
  if not place and kind and late(begin_by) then return late(begin_by) end
  if not place and kind and kind ~= 'q' then
    local declined
    queue.note, declined = note_ask(queue.note, kind, tonumber(limit))
    if declined then write_note(queue.last, queue.note) end
    if declined then return declined end
  end
  local is_taken = holds.capacity
    and (holds.used >= math.max(holds.capacity, capacity) or not queue.head and holds.used + units > capacity)
  if not place and not waits and is_taken and #holds.over == 0 then
    write_note(queue.last, queue.note)
    return { 'busy', busy_for(holds), 0 }
  end
  if not place and late(begin_by) then return late(begin_by) end

  local is_newcomer = not place and not (waits and may_restore(queue, told_ticket))
  local is_restored = not place and not is_newcomer
  local leaves_none = not place and not waits
  place = place or {}
  place.units, place.capacity, place.lease, place.label, place.is_impatient = units, capacity, lease, label, not waits
  if not leaves_none then hear(queue, place, ttl, told_ticket) end
  if not is_newcomer then plan.heard[member] = place end
  drop(holds, plan, holds.over)
  if is_restored then restore(queue, plan, member, place, ttl, told_ticket) else hand_on(holds, queue, plan, capacity) end

  -- A newcomer gets its units if they are free and no waiter is ahead.
  local is_behind = plan.blocked or plan.more_to_scan
  local other, ahead = plan.other or holds.capacity and not is_alike(holds.capacity, capacity) and holds.capacity, nil
  if is_newcomer and not is_behind and not other and holds.used + units <= capacity then
    grant(holds, queue, plan, member, place, lease)
  elseif is_newcomer and waits and not other then
    ahead = join_behind(queue, plan, member, place, kind == 'q' and limit)
  end
  local granted = plan.grants[member]
  if not granted and place.ticket and waits then keep_place(plan, member, place) end
  if not granted and place.ticket and not waits then plan.leaves[#plan.leaves + 1] = member end
  plan.heard[member] = place
  write(holds, queue, plan, is_newcomer)
  tell(holds, plan)

  if granted then return granted.lease == lease and granted.token or { 'granted', granted.token, granted.lease } end
  if other then return mismatch(other) end
  if ahead then return { 'declined', 'ahead', ahead } end
  if not waits then return { 'busy', busy_for(holds), more_to_do(holds, plan) } end
  local rank = redis.call('ZRANK', waiters, member)
  return { rank, look_in(holds, queue, plan, rank, ttl, capacity), text(place.ticket), text(queue.last), holds.is_foreign and 1 or 0 }
end

return by_rule()
