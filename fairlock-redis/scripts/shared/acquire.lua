-- uses: lib/clock lib/kind lib/places lib/shared
-- Takes units of the lock, or a place in the line; grants the lock to all at the head whose units are free.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: member, lease (ms), ttl of the place (ms), options (see lib/places), label, units that it takes, capacity, and the
--   ticket that the request was told (0 if none)
-- Returns: {granted, token, lease left ms} | {busy, ms or -1, 1 if there is more to do}
--   | {queued, rank, recheck in ms or -1, ticket, last number}
-- Effects: holds that are over are dropped; a hold; or ticket and place, with a time to live; sequence; a push to each new holder
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, lease, ttl, options, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local takes, capacity, told_ticket = ARGV[6], ARGV[7], ARGV[8]
lease, takes, capacity, told_ticket = tonumber(lease), tonumber(takes), tonumber(capacity), tonumber(told_ticket)

local state = open_lock(lock, holds, line, places, sequence, ttl, options)
local refused = refusal(state, capacity)
if refused then return refused end
-- A repeat, whose first answer was lost; or the push was lost.
local hold = hold_of(state, member)
if hold then return { 'granted', hold.token, hold.ends - now } end
local ticket = state.length > 0 and tonumber(redis.call('ZSCORE', line, member))
if not ticket and not state.waits and #state.over == 0 and state.used + takes > capacity then
  return { 'busy', recheck_in(state, 0), 0 }
end

local restored = not ticket and state.waits and may_restore(state, member, told_ticket)
begin(state, restored and 'restored' or ticket and 'waiter' or 'newcomer')
drop_over(state)
local labelled = string.format('%.0f/%.0f %s', takes, capacity, label)
if restored then
  ticket = restore_place(state, member, told_ticket, lease, labelled)
elseif ticket then
  ticket = refresh_place(state, member, ticket, lease, labelled)
end
if ticket then keep_line(state) end
hand_on(state)
local granted = state.grants[member]
if not granted and not ticket and may_enter(state, takes, capacity) then
  granted = grant(state, member, takes, capacity, lease, label)
end
-- The waiters ahead have another capacity.
refused = not granted and state.capacity and state.capacity ~= capacity
if not granted and not refused then
  if state.waits and not ticket then
    add_place(state, member, next_number(state), lease, labelled)
    keep_line(state)
  elseif not state.waits and ticket then
    -- It may have been the one that did not fit.
    remove_place(state, member)
    state.head = nil
    hand_on(state)
  end
end
if ticket then sweep(state) end
settle(state)
push(state)

if granted then return { 'granted', granted.token, granted.lease } end
if refused then return mismatch('shared ' .. format_int(state.capacity), kind_of(format_int(capacity))) end
if not state.waits then return { 'busy', recheck_in(state, 0), more_to_do(state) } end
local rank = state.length == 0 and 0 or redis.call('ZRANK', line, member)
return { 'queued', rank, recheck_in(state, rank), ticket or state.last, state.last }
