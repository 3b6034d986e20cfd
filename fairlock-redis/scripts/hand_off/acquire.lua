-- uses: lib/clock lib/hand_off
-- Takes the lock, or a place in the line; hands the lock on if it is free.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, lease (ms), ttl of the place (ms), mode (`wait` or `once`), label, whether the server knows all
--   listeners (1 or 0), prefix of the clients' channels, name of the lock, whether the caller's client is deaf (1 or 0), ticket
--   that the request was told (0 if none), channel of plain waiters, keys of Redisson's line (Keys::queue, or empty) and its
--   times (Keys::timeouts)
-- Returns: {granted, token, lease left ms} | {busy, ms or -1, 1 if there is more of the line to scan}
--   | {queued, rank, recheck in ms or -1, ticket, last number, whether Redisson's line exists (2: the user may not look)}
-- Effects: hash with a lease; or ticket and place, with a time to live; sequence; a push to a new holder
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, lease, ttl, mode, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local knows_listeners, client_prefix, name, deaf, told_ticket = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local plain_channel, redisson_queue, redisson_timeouts = ARGV[12], ARGV[13], ARGV[14]

local member = owner .. ':' .. request
local holder, token = parse_hold(redis.call('HGET', lock, 'fairlock'))
local state = open_line(lock, line, places, sequence, ttl,
  { knows_listeners, client_prefix, name, plain_channel, redisson_queue, redisson_timeouts })
state.is_deaf = deaf == '1'
local ticket = state.length > 0 and tonumber(redis.call('ZSCORE', line, member))

-- A repeat, whose first answer was lost; or the push was lost.
if holder == member then return { 'granted', tonumber(token), lease_left(lock, lease) } end
-- A hold of this owner under another request does not matter: which of the two requests is the late one can't be known
-- here, so that hold ends by its own release, or with its lease.
local left = redis.call('PTTL', lock)
local free = left == -2
if not free and not ticket and mode == 'once' then return { 'busy', left, 0 } end

local restored = not ticket and mode == 'wait' and may_restore(state, member, tonumber(told_ticket))
probe_rights(state, restored and 'restored' or ticket and 'waiter' or free and 'newcomer' or 'tail')
if restored then
  ticket = restore_place(state, member, tonumber(told_ticket), lease, label)
elseif ticket then
  ticket = refresh_place(state, member, ticket, lease, label)
end
if ticket then keep_line(state) end

if free then
  local winner, granted, lasts
  if state.length > 0 then
    save_clock(state)
    winner, granted, lasts = hand_on(state)
  else
    reserve_for_redisson(state)
  end
  if winner == member then return { 'granted', granted, lasts } end
  local rests = state.length > 0 and is_resting(state)
  if not ticket and not winner and not state.more_to_scan and not state.is_reserved and not rests then
    return { 'granted', grant_to(state, member, lease, label), tonumber(lease) }
  end
end

if mode == 'once' then
  if ticket then
    remove_place(state, member)
    save_clock(state)
  end
  push(state)
  left = redis.call('PTTL', lock)
  return { 'busy', left == -2 and (state.is_reserved and state.reserved_until - now or 0) or left, more_to_scan(state) }
end
if restored then
  save_restored(state)
elseif ticket then
  save_clock(state)
else
  add_place(state, member, next_number(state), lease, label)
  keep_line(state)
  save_clock(state, 'ticket', format_int(state.last))
end
if ticket or free then sweep(state) end
push(state)
local rank = state.length == 0 and 0 or redis.call('ZRANK', line, member)
local redisson_line = check_redisson(state, free or holder)
return { 'queued', rank, recheck_in(state, rank), ticket or state.last, state.last, redisson_line }
