-- Heartbeat of one client's waiters; grants the lock to all at the head whose units are free.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: ttl of the places (ms), options (see lib/line), capacity, until when it may put places back (see lib/clock),
--   then for each place: member, lease (ms), ticket that the request was told (0 if none), units
-- Returns: a row for each place: {granted, token, lease left ms} | {waiting, rank, recheck in ms or -1, last number} | {lost}
-- Effects: places live on, with their keys; holds that are over are dropped; sequence; a push to each new holder
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, options, capacity, begin_by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include lib/clock: late
-- @include lib/line: refresh_place, keep_line, may_restore, was_forgotten, restore_place, sweep
-- @include lib/holds: open_lock, hold_of, lease_left, refusal, begin, drop, hand_on, settle, push, recheck_in

local state = open_lock(lock, line, record, ends, ttl, options)
local rows, waiters, is_other, speaks = {}, {}, refusal(state, tonumber(capacity)), false
for from = 5, #ARGV, 4 do
  local member, lease, told_ticket, takes = ARGV[from], ARGV[from + 1], tonumber(ARGV[from + 2]), ARGV[from + 3]
  local waiter, index = { member = member, lease = lease, told_ticket = told_ticket, takes = takes }, #waiters + 1
  waiters[index] = waiter
  local hold = hold_of(state, member)
  waiter.ticket = not hold and tonumber(redis.call('ZSCORE', line, member))
  -- A heartbeat restores only a place that was forgotten: it may have crossed the release of the hold that the place became, or
  -- the request's withdrawal. Nor after the end of this attempt. If the request still waits, its client asks again.
  local is_gone = not hold and not waiter.ticket and not late(begin_by)
  waiter.restored = is_gone and may_restore(state, member, told_ticket) and was_forgotten(state, member, told_ticket)
  speaks = speaks or waiter.ticket or waiter.restored
  if hold and not grace_left then
    rows[index] = { 'granted', hold.token, lease_left(state, hold, tonumber(lease)) }
  elseif hold or is_other or not waiter.ticket and not waiter.restored then
    -- One that waits for another kind of lock learns that when it asks.
    rows[index] = { 'lost' }
  end
end
if not speaks and state.length == 0 and #state.over == 0 then return rows end

begin(state)
drop(state, state.over)
for index, waiter in ipairs(waiters) do
  if rows[index] then
    -- It has its answer.
  elseif waiter.ticket then
    refresh_place(state, waiter.member, waiter.ticket, waiter.lease)
  else
    restore_place(state, waiter.member, waiter.told_ticket, waiter.lease, waiter.takes .. '/' .. capacity .. ' ', true)
  end
end
keep_line(state)
hand_on(state)
sweep(state)
settle(state)
push(state)

local first
for index, waiter in ipairs(waiters) do
  local granted = state.grants[waiter.member]
  if granted then
    rows[index] = { 'granted', granted.token, granted.lease }
  elseif not rows[index] then
    rows[index] = { 'waiting', redis.call('ZRANK', line, waiter.member), -1, state.last }
    if not first or rows[index][2] < first[2] then first = rows[index] end
  end
end
if first then first[3] = recheck_in(state, first[2]) end
return rows
