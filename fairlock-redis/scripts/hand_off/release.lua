-- Ends a hold, and grants its units to waiters.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: capacity; member, units and token of the hold; options (see acquire)
-- Returns: 0 if the hold is released, 1 if there is more to do besides (see lib/tell) | {not_held, 1 if there is more to do, or 0}
-- Effects: the hold and those that are over are dropped; sequence; a push to each new holder
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local capacity, member, units, token, options = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local call = redis.call
-- How the hold's field begins, and who is first in the queue: nil if nobody waits, false in a grace (then no case applies).
local named, first = units .. ' ' .. token .. ' ', not grace_left and call('ZRANGE', waiters, '0', '0')[1]
-- @include lib/tell: wake_plain, publish
-- @include case/hold: free
-- @include lib/clock: number, since, now
-- The units that are taken, if the hold is there (however often it was entered) and no hold is over. All further cases need that.
local fields, first_end = call('HMGET', lock, 'mode', 'used', member), ends and call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2]
local used = fields[1] == capacity and string.find(fields[3] or '', named, 1, true) == 1
  and (not ends and 1 or first_end and tonumber(first_end) > now and tonumber(fields[2]))
if used and (used < 0 or used > 4294967295) then used = nil end -- Another program's number, which the rule reads.
-- @include case/hold: part
-- @include lib/clock: text
-- @include lib/format: hold_text, queue_text, read_numbers, read_place
-- @include lib/queue: clock_at, lease_of, keep_anew, CLIENT_PREFIX, is_present
local texts = used and first and call('HMGET', record, 'last', 'queue', first) or {}
local served, pulse, clock, least, rests = read_numbers(texts[2])
clock = clock_at(pulse, clock, least)
-- The first waiter's place. Only the rule can decide, and `place` is missing, if `used` or `first` is, if the queue rests, if the clock is
-- behind the last number, if the caller itself is first, or if the place names another capacity.
local place = texts[1] and texts[1] < number and clock >= tonumber(rests) and first ~= member and read_place(first, texts[3])
if place and place.capacity ~= capacity then place = nil end
-- @include case/hold: beside
-- @include case/hold: next

-- All else.
-- @include lib/format: newer
-- @include case/hold: layout
-- @include lib/holds: read_holds, hold_of
-- @include lib/queue: read_queue
-- @include lib/rule: new_plan, drop, hand_on
-- @include lib/write: write
-- @include lib/tell: tell, more_to_do

local function by_rule()
  capacity, token = tonumber(capacity), tonumber(token)
  local holds, queue, plan = read_holds(member), read_queue(member), new_plan()
  local hold = hold_of(holds, member, holds.own)
  local is_held = hold and hold.token == token
  -- A late repeat of `acquire` may have made a place after the hold ended: a release ends the request, whatever its state.
  local in_queue = not is_held and queue.own and redis.call('ZRANK', waiters, member)
  -- The hold may have expired, which causes no message: so what is free is handed on.
  local is_taken = holds.capacity and holds.used >= holds.capacity
  if not is_held and not grace_left and not in_queue and (not queue.head or is_taken) and #holds.over == 0 then
    return { 'not_held', 0 }
  end

  -- `is_later`: a later hold was found, so the released hold is over. In a grace the server may have no hold, or an older hold whose
  -- holder is late; a reclaim that comes after this release must not bring the released hold back.
  local is_later = hold and holds.used == holds.capacity and hold.token > token
  if grace_left then end_in_grace(record, queue, plan, token, not ends or hold and hold.units == holds.capacity) end
  if is_held then drop(holds, plan, { member }) end
  drop(holds, plan, holds.over)
  if in_queue then plan.heard[member], plan.leaves[1] = 'gone', member end
  hand_on(holds, queue, plan, capacity)
  write(holds, queue, plan)
  tell(holds, plan)
  if is_held or grace_left and not is_later then return more_to_do(holds, plan) end
  return { 'not_held', more_to_do(holds, plan) }
end

return by_rule()
