-- uses: lib/clock lib/kind lib/owner lib/places lib/hand_off
-- Heartbeat of one client's waiters; hands the lock on if it is free.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: ttl of the places (ms), options (see lib/places), until when it may put places back (see lib/clock),
--   then for each place: member, lease (ms), ticket that the request was told (0 if none)
-- Returns: a row for each place: {granted, token, lease left ms} | {waiting, rank, recheck in ms or -1, last number}
--   | {lost}
-- Effects: places live on, with their keys; hash with a lease; sequence; a push to a new holder
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, options, begin_by = ARGV[1], ARGV[2], ARGV[3]
local waiters = {}
for index = 4, #ARGV, 3 do
  local member, lease, told_ticket = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  waiters[#waiters + 1] = { member = member, lease = lease, told_ticket = tonumber(told_ticket) }
end

local holder, token = parse_hold(redis.call('HGET', lock, 'fairlock'))
local state = open_line(lock, line, places, sequence, ttl, options)
local free = is_free(lock)
local refused = not holder and not free and not_exclusive(read_holder(lock, {}))
if refused then return refused end
local restored = false
for _, waiter in ipairs(waiters) do
  waiter.ticket = tonumber(redis.call('ZSCORE', line, waiter.member))
  -- A heartbeat does not restore a place that may have been granted the lock: it may have crossed the release of that very
  -- hold. Nor after the end of this attempt. If the request still waits, its client asks again.
  local told_ticket = not late(begin_by) and waiter.told_ticket
  local never_served = not waiter.ticket and waiter.member ~= holder and told_ticket and told_ticket > state.served
  waiter.restored = never_served and may_restore(state, waiter.member, told_ticket)
  restored = restored or waiter.restored
end
probe_rights(state, restored and 'restored' or 'waiter')
count_ttl(state)
save(state)

local rows = {}
for index, waiter in ipairs(waiters) do
  if waiter.member == holder then
    rows[index] = { 'granted', tonumber(token), lease_left(lock, waiter.lease) }
    --life: if grace_left then rows[index] = { 'lost' } end
  elseif waiter.ticket then
    refresh_place(state, waiter.member, waiter.ticket, waiter.lease)
  elseif waiter.restored then
    restore_place(state, waiter.member, waiter.told_ticket, waiter.lease, '')
  else
    rows[index] = { 'lost' }
  end
end
if restored then save(state) end
redis.call('PEXPIRE', line, math.max(KEEP_LINE_FOR, 12 * state.ttl))
redis.call('PEXPIRE', places, math.max(KEEP_LINE_FOR, 12 * state.ttl))
local winner, granted, left
if state.length > 0 and free then
  winner, granted, left = hand_on(state)
end
sweep(state)
push(state)
local first
for index, waiter in ipairs(waiters) do
  if waiter.member == winner then
    rows[index] = { 'granted', granted, left }
  elseif not rows[index] then
    rows[index] = { 'waiting', redis.call('ZRANK', line, waiter.member), -1, state.last }
    if not first or rows[index][2] < first[2] then first = rows[index] end
  end
end
if first then
  if not free and not holder and first[2] == 0 then check_redisson(state, holder) end
  first[3] = recheck_in(state, first[2])
end
return rows
