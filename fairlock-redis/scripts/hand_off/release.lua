-- uses: lib/clock lib/hand_off
-- Hands the lock on to the next in line; a bump (with a new request) only if there are waiters, and queues behind them.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, token, whether the server knows all listeners (1 or 0), prefix of the clients' channels, name of the
--   lock, new request (or empty), its lease (ms), its ttl (ms), its label, channel of plain waiters,
--   keys of Redisson's line (Keys::queue, or empty) and its times (Keys::timeouts)
-- Returns: {released, 1 if there is more of the line to scan} | {not_held, as before} | {kept}
--   | {queued, rank, recheck in ms or -1, ticket, last number} | {granted, token, lease left ms}: the state of the new
--   request
-- Effects: hash deleted, or the next holder's; sequence; a push to a new holder; ticket and place of the new request
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, knows_listeners, client_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local name, new_request, new_lease, new_ttl, new_label = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local plain_channel, redisson_queue, redisson_timeouts = ARGV[11], ARGV[12], ARGV[13]

local held = redis.call('HMGET', lock, owner, 'fairlock')
local state = open_line(lock, line, places, sequence, new_ttl,
  { knows_listeners, client_prefix, name, plain_channel, redisson_queue, redisson_timeouts })
local member = owner .. ':' .. request
local new_member = new_request ~= '' and owner .. ':' .. new_request
local new_ticket = new_member and state.length > 0 and tonumber(redis.call('ZSCORE', line, new_member))

local is_holder = held[1] and held[2] == member .. ' ' .. token
if not is_holder then
  -- The hold may have expired, which causes no message; or this is the repeat of a bump whose new request is in line.
  local free, winner, granted, lasts = is_free(lock), nil, nil, nil
  -- A late repeat of its acquire may have come here after the hold ended: a release ends the request, whatever its state.
  local in_line = state.length > 0 and redis.call('ZSCORE', line, member)
  if state.length > 0 and (free or new_ticket or in_line) then
    probe_rights(state, new_ticket and 'waiter' or 'holder')
    if new_ticket then count_ttl(state) end
    save_clock(state)
    if in_line then
      remove_place(state, member)
      state.head = nil -- it may have been this member
    end
    if new_ticket then
      new_ticket = refresh_place(state, new_member, new_ticket, new_lease, new_label)
      keep_line(state)
    end
    if free then winner, granted, lasts = hand_on(state) end
    push(state)
  end
  if not new_member then return { 'not_held', more_to_scan(state) } end
  -- The new request has the lock by now.
  if winner == new_member then return { 'granted', granted, lasts } end
  local holder, held_token = parse_hold(held[2])
  if holder == new_member then return { 'granted', tonumber(held_token), lease_left(lock, new_lease) } end
  if not new_ticket then return { 'not_held', more_to_scan(state) } end
  local rank = redis.call('ZRANK', line, new_member)
  return { 'queued', rank, recheck_in(state, rank), new_ticket, state.last }
end
if state.length == 0 then
  if new_member then return { 'kept' } end
  if not redisson_is_due(state) then
    redis.call('DEL', lock)
    wake_plain(state)
    return { 'released', 0 }
  end
end
probe_rights(state, new_member and 'waiter' or 'holder')
redis.call('HSET', lock, owner, held[1]) -- changes nothing, and shows that HSET may be used
if new_member and not (first_present(state) or state.more_to_scan) then return { 'kept' } end
redis.call('DEL', lock)
if new_member then
  new_ticket = next_number(state)
  add_place(state, new_member, new_ticket, new_lease, new_label)
  state.length = state.length + 1
  state.asking[new_member] = nil -- if it is next after all, it is granted the lock by a push
  keep_line(state)
  save_clock(state, 'ticket', format_int(new_ticket))
end
if not hand_on(state) then wake_plain(state) end
push(state)
if not new_member then return { 'released', more_to_scan(state) } end
local rank = redis.call('ZRANK', line, new_member) or 0
return { 'queued', rank, recheck_in(state, rank), new_ticket, state.last }
