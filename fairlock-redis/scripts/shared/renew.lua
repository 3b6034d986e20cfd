-- uses: lib/clock lib/kind lib/owner lib/places lib/shared
-- Renews one client's holds and places; grants the lock to all at the head whose units are free.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: ttl of the places (ms), options (see lib/places), capacity, until when it may put places back (see lib/clock), how many
--   holds,
--   then for each hold: member, token and a space; count; lease (ms),
--   then for each place: member, lease (ms), ticket that the request was told (0 if none), units
-- Returns: a row for each hold: {renewed} | {lost}, then for each place: {granted, token, lease left ms}
--   | {waiting, rank, recheck in ms or -1, last number} | {lost}
-- Effects: holds end later, and shortened only after a clock that was set back; counts are set; places live on, with their keys;
--   holds that are over are dropped; sequence; a push to each new holder
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ttl, options, capacity, begin_by, n_holds = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
capacity, n_holds = tonumber(capacity), tonumber(n_holds)
local renewals, waiters, first_place = {}, {}, 6 + 3 * n_holds
for index = 6, first_place - 1, 3 do
  local named, count, lease = ARGV[index], ARGV[index + 1], tonumber(ARGV[index + 2])
  renewals[#renewals + 1] = { named = named, count = count, lease = lease }
end
for index = first_place, #ARGV, 4 do
  local member, lease, told_ticket, takes = ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3]
  waiters[#waiters + 1] = { member = member, lease = lease, told_ticket = tonumber(told_ticket), takes = takes }
end

local state = open_lock(lock, holds, line, places, sequence, ttl, options)
local rows, is_other, restored, speaks = {}, refusal(state, capacity), false, false
for index, renewal in ipairs(renewals) do
  local member, token = string.match(renewal.named, '^(.*) (%d+) $')
  local hold = hold_of(state, member)
  renewal.member, renewal.hold = member, hold and format_int(hold.token) == token and hold
  rows[index] = { renewal.hold and 'renewed' or 'lost' }
  speaks = speaks or renewal.hold
end
for index, waiter in ipairs(waiters) do
  local hold = hold_of(state, waiter.member)
  waiter.ticket = not hold and tonumber(redis.call('ZSCORE', line, waiter.member))
  -- A heartbeat does not restore a place that may have been granted the lock: it may have crossed the release of that very
  -- hold. Nor after the end of this attempt. If the request still waits, its client asks again.
  local never_served = not hold and not waiter.ticket and not late(begin_by) and waiter.told_ticket > state.served
  waiter.restored = never_served and may_restore(state, waiter.member, waiter.told_ticket)
  restored = restored or waiter.restored
  speaks = speaks or waiter.ticket or waiter.restored
  if hold then
    rows[n_holds + index] = { 'granted', hold.token, hold.ends - now }
  elseif is_other or not waiter.ticket and not waiter.restored then
    -- One that waits for another kind of lock learns that when it asks.
    rows[n_holds + index] = { 'lost' }
  end
end
if not speaks and state.length == 0 and #state.over == 0 then return rows end

begin(state, restored and 'restored' or 'waiter')
drop_over(state)
for _, renewal in ipairs(renewals) do
  local hold, lease = renewal.hold, renewal.lease
  if hold and hold.count ~= renewal.count then
    redis.call('HSET', lock, renewal.member, hold.takes .. ' ' .. format_int(hold.token) .. ' ' .. renewal.count .. ' ' .. hold.label)
  end
  -- See lib/hold.
  if hold and (hold.ends < now + lease or hold.ends > now + 2 * lease + 60000) then
    state.ends[#state.ends + 1] = format_int(now + lease)
    state.ends[#state.ends + 1] = renewal.member
  end
end
for index, waiter in ipairs(waiters) do
  local label = waiter.takes .. '/' .. format_int(capacity) .. ' '
  if rows[n_holds + index] then
    -- It has its answer.
  elseif waiter.ticket then
    refresh_place(state, waiter.member, waiter.ticket, waiter.lease)
  else
    restore_place(state, waiter.member, waiter.told_ticket, waiter.lease, label)
  end
end
if #waiters > 0 and state.length > 0 then keep_line(state) end
hand_on(state)
sweep(state)
settle(state)
push(state)

local first
for index, waiter in ipairs(waiters) do
  local at, granted = n_holds + index, state.grants[waiter.member]
  if granted then
    rows[at] = { 'granted', granted.token, granted.lease }
  elseif not rows[at] then
    rows[at] = { 'waiting', redis.call('ZRANK', line, waiter.member), -1, state.last }
    if not first or rows[at][2] < first[2] then first = rows[at] end
  end
end
if first then first[3] = recheck_in(state, first[2]) end
return rows
