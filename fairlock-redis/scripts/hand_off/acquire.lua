-- uses: lib/clock lib/hand_off
-- Takes the lock, or a place in the line; hands on if it finds the lock free.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, lease (ms), ttl of the place (ms), mode (`wait` or `once`), label, knows who listens (1 or 0),
--   prefix of the clients' channels, name of the lock, whether the asker's client is deaf (1 or 0), ticket that the request
--   was told (0 if none), channel of those who wait for a plain lock, keys of Redisson's line (Keys::queue, or empty) and its
--   times (Keys::timeouts)
-- Returns: {granted, token, lease left ms} | {busy, ms or -1, whether to go on}
--   | {queued, rank, look again in ms or -1, ticket, latest number, whether Redisson's line exists (2: the user may not look)}
-- Effects: hash with a lease; or ticket and place, with a time to live; sequence; a push to whoever got the lock
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, lease, ttl, mode, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local knows, client_prefix, name, deaf, told = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local plain_channel, other_line, other_times = ARGV[12], ARGV[13], ARGV[14]

local member = owner .. ':' .. request
local holder, token = hold_of(redis.call('HGET', lock, 'fairlock'))
local at = open_line(lock, line, places, sequence, ttl)
at.knows, at.client_prefix, at.is_deaf = knows, client_prefix, deaf == '1'
at.plain_channel, at.other_line, at.other_times = plain_channel, other_line, other_times
local ticket = at.length > 0 and tonumber(redis.call('ZSCORE', line, member))

-- A repeat, or a push that was lost.
if holder == member then
  return { 'granted', tonumber(token), left_of(lock, lease) }
end
-- Nor does it matter that the owner holds it under another request: which of the two is the late one can't be known
-- here, so it ends by its own release, or with its lease.
local left = redis.call('PTTL', lock)
local free = left == -2
if not free and not ticket and mode == 'once' then
  return { 'busy', left, 0 }
end
local back = not ticket and mode == 'wait' and is_believed(at, member, tonumber(told))
begin(at, back and 'back' or ticket and 'waiter' or free and 'newcomer' or 'tail')
if back then
  ticket = put_back(at, member, tonumber(told), lease, label)
  keep_line(at)
elseif ticket then
  ticket = speak_again(at, member, ticket, lease, label)
end
if free then
  local winner, granted, lasts
  if at.length > 0 then
    remember(at)
    winner, granted, lasts = hand_on(at)
  else
    steps_aside(at)
  end
  if winner == member then
    return { 'granted', granted, lasts }
  end
  local nobody_is_next = not winner and not at.unsure and not at.is_aside and not (at.length > 0 and rests(at))
  if nobody_is_next and not ticket then
    return { 'granted', grant_to(at, member, lease, label), tonumber(lease) }
  end
end

if mode == 'once' then
  if ticket then
    leave(at, member)
    remember(at)
  end
  push(at, name)
  left = redis.call('PTTL', lock)
  return { 'busy', left == -2 and (at.is_aside and at.aside - now or 0) or left, goes_on(at) }
end
if back then
  remember_back(at)
elseif ticket then
  remember(at)
else
  local number = whole(next_number(at))
  speak(at, member, 0, lease, whole(now), label)
  redis.call('ZADD', line, number, member)
  keep_line(at)
  remember(at, 'ticket', number)
end
if ticket or free then sweep(at) end
ticket = ticket or at.last
push(at, name)
local rank = at.length == 0 and 0 or redis.call('ZRANK', line, member)
local beside = look_beside(at, free or holder)
return { 'queued', rank, look_again(at, rank), ticket, at.last, beside }
