-- uses: lib/clock lib/hand_off
-- Gives the lock up and makes the next in line the holder; with a new request only if somebody waits, and behind them.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, token, knows who listens (1 or 0), prefix of the clients' channels, name of the lock,
--   new request (or empty), its lease (ms), its ttl (ms), its label, channel of those who wait for a plain lock,
--   keys of Redisson's line (Keys::queue, or empty) and its times (Keys::timeouts)
-- Returns: {released, whether to go on} | {not_held, whether to go on} | {kept}
--   | {queued, rank, look again in ms or -1, ticket, latest number} | {granted, token, lease left ms}: how the new request
--   stands
-- Effects: hash deleted, or the next one's; sequence; a push to whoever got the lock; ticket and place of the new request
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, knows, client_prefix, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local again, again_lease, again_ttl, again_label, plain_channel = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local other_line, other_times = ARGV[12], ARGV[13]

local held = redis.call('HMGET', lock, owner, 'fairlock')
local at = open_line(lock, line, places, sequence, again ~= '' and again_ttl)
at.knows, at.client_prefix = knows, client_prefix
at.plain_channel, at.other_line, at.other_times = plain_channel, other_line, other_times

local member = again ~= '' and owner .. ':' .. again
local ticket = member and at.length > 0 and tonumber(redis.call('ZSCORE', line, member))

local mine = held[1] and held[2] == owner .. ':' .. request .. ' ' .. token
if not mine then
  -- It may have ended without a word to anybody; or this is the repeat of a bump whose new request is in line.
  local free, winner, granted, lasts = is_free(lock), nil, nil, nil
  -- A late repeat of its ask may have come here after its hold was over: this gives the request up, whatever its state.
  local given_up = owner .. ':' .. request
  local stays = at.length > 0 and redis.call('ZSCORE', line, given_up)
  if at.length > 0 and (free or ticket or stays) then
    begin(at, ticket and 'waiter' or 'holder')
    if ticket then count_ttl(at) end
    remember(at)
    if stays then
      leave(at, given_up)
      at.head = nil -- it may have been his
    end
    if ticket then ticket = speak_again(at, member, ticket, again_lease, again_label) end
    if free then winner, granted, lasts = hand_on(at) end
    push(at, name)
  end
  if not member then return { 'not_held', goes_on(at) } end
  -- The new request has the lock by now.
  if winner == member then return { 'granted', granted, lasts } end
  local holder, held_as = hold_of(held[2])
  if holder == member then return { 'granted', tonumber(held_as), left_of(lock, again_lease) } end
  if not ticket then return { 'not_held', goes_on(at) } end
  local rank = redis.call('ZRANK', line, member)
  return { 'queued', rank, look_again(at, rank), ticket, at.last }
end
if at.length == 0 then
  if member then return { 'kept' } end
  if not owes_a_turn(at) then
    redis.call('DEL', lock)
    tell_plain(at)
    return { 'released', 0 }
  end
end
begin(at, member and 'waiter' or 'holder')
redis.call('HSET', lock, owner, held[1]) -- as it is: HSET may be used
if member and not (first_present(at) or at.unsure) then return { 'kept' } end
redis.call('DEL', lock)
local number
if member then
  number = next_number(at)
  speak(at, member, 0, again_lease, whole(now), again_label)
  redis.call('ZADD', line, whole(number), member)
  at.length = at.length + 1
  at.speaking[member] = nil
  keep_line(at)
  remember(at, 'ticket', whole(number))
end
if not hand_on(at) then tell_plain(at) end
push(at, name)
if not member then return { 'released', goes_on(at) } end
local rank = redis.call('ZRANK', line, member) or 0
return { 'queued', rank, look_again(at, rank), number, at.last }
