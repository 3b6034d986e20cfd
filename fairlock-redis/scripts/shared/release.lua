-- uses: lib/clock lib/kind lib/places lib/shared
-- Ends a hold and grants its units to waiters; a bump (with a new request) only if there are any, and queues behind them.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: the hold's member, token and a space, options (see lib/places); for a bump also the new member, its lease (ms), its
--   ttl (ms), its label, its units, its capacity
-- Returns: {released, 1 if there is more to do} | {not_held, as before} | {kept}
--   | {queued, rank, recheck in ms or -1, ticket, last number} | {granted, token, lease left ms}: the state of the new
--   request
-- Effects: the hold and those that are over are dropped; sequence; a push to each new holder; ticket and place of the new request
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local named, options = ARGV[1], ARGV[2]
local new_member, new_lease, new_ttl, new_label = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local takes, capacity = ARGV[7], ARGV[8]

local member, token = string.match(named, '^(.*) (%d+) $')
local state = open_lock(lock, holds, line, places, sequence, new_ttl, options)
local hold = hold_of(state, member)
local is_held = hold and format_int(hold.token) == token
-- A late repeat of its acquire may have come here after the hold ended: a release ends the request, whatever its state.
local in_line = not is_held and state.length > 0 and redis.call('ZSCORE', line, member)
-- This is the repeat of a bump whose new request is in line, or was granted the lock.
local new_hold = new_member and not is_held and hold_of(state, new_member)
if new_hold then return { 'granted', new_hold.token, new_hold.ends - now } end
local new_ticket = new_member and state.length > 0 and tonumber(redis.call('ZSCORE', line, new_member))
if not is_held and state.length == 0 and #state.over == 0 then return { 'not_held', 0 } end
if is_held and new_member and not (first_waiting(state) or state.more_to_scan) then return { 'kept' } end

begin(state, new_member and 'waiter' or 'holder')
if is_held then drop(state, { member }) end
drop_over(state)
if in_line then
  remove_place(state, member)
  state.head = nil -- it may have been this member
end
if new_ticket then
  new_ticket = refresh_place(state, new_member, new_ticket, new_lease, takes .. '/' .. capacity .. ' ' .. new_label)
elseif new_member and is_held then
  new_ticket = next_number(state)
  add_place(state, new_member, new_ticket, new_lease, takes .. '/' .. capacity .. ' ' .. new_label)
  state.length = state.length + 1
end
if new_ticket then keep_line(state) end
hand_on(state)
settle(state)
push(state)
if not new_ticket then return { is_held and 'released' or 'not_held', more_to_do(state) } end
local granted = state.grants[new_member]
if granted then return { 'granted', granted.token, granted.lease } end
local rank = redis.call('ZRANK', line, new_member)
return { 'queued', rank, recheck_in(state, rank), new_ticket, state.last }
