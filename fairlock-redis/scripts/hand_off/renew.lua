-- uses: lib/clock lib/hand_off
-- Says that the waiters of one client are alive, and hands on if the lock is free.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: ttl of the places (ms), knows who listens (1 or 0), prefix of the clients' channels, name of the lock, label,
--   whether the client is deaf (1 or 0), channel of those who wait for a plain lock, keys of Redisson's line (Keys::queue, or
--   empty) and its times (Keys::timeouts),
--   then for each place: owner, request, lease (ms), ticket that the request was told (0 if none)
-- Returns: a row a place: {granted, token, lease left ms} | {waiting, rank, look again in ms or -1, latest number}
--   | {lost}
-- Effects: places live on, with their keys; hash with a lease; sequence; a push to whoever got the lock
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, knows, client_prefix, name, label, deaf = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local plain_channel, other_line, other_times = ARGV[7], ARGV[8], ARGV[9]
local waiters = {}
for index = 10, #ARGV, 4 do
  local owner, request, lease, told = ARGV[index], ARGV[index + 1], ARGV[index + 2], ARGV[index + 3]
  waiters[#waiters + 1] = { member = owner .. ':' .. request, lease = lease, told = tonumber(told) }
end

local holder, token = hold_of(redis.call('HGET', lock, 'fairlock'))
local at = open_line(lock, line, places, sequence, ttl)
at.knows, at.client_prefix, at.is_deaf = knows, client_prefix, deaf == '1'
at.plain_channel, at.other_line, at.other_times = plain_channel, other_line, other_times
local free = is_free(lock)
local back = false
for _, waiter in ipairs(waiters) do
  waiter.ticket = tonumber(redis.call('ZSCORE', line, waiter.member))
  -- What may have been granted the lock is not put back by a heartbeat: this one may have crossed the release of that
  -- very hold. Its client asks, if it still waits.
  local never_served = not waiter.ticket and waiter.member ~= holder and waiter.told and waiter.told > at.served
  waiter.back = never_served and is_believed(at, waiter.member, waiter.told)
  back = back or waiter.back
end
begin(at, back and 'back' or 'waiter')
count_ttl(at)
remember(at)

local rows = {}
for index, waiter in ipairs(waiters) do
  local ticket = waiter.ticket
  if waiter.member == holder then
    rows[index] = { 'granted', tonumber(token), left_of(lock, waiter.lease) }
  elseif ticket then
    local place = place_of(at, waiter.member)
    speak(at, waiter.member, ticket, waiter.lease, place and place.since or whole(now), place and place.label or label)
  elseif waiter.back then
    put_back(at, waiter.member, waiter.told, waiter.lease, label)
  else
    rows[index] = { 'lost' }
  end
end
if back then remember_back(at) end
redis.call('PEXPIRE', line, math.max(KEEP_LINE_FOR, 12 * at.ttl))
redis.call('PEXPIRE', places, math.max(KEEP_LINE_FOR, 12 * at.ttl))
local winner, granted, left
if at.length > 0 and free then
  winner, granted, left = hand_on(at)
end
sweep(at)
push(at, name)
local first
for index, waiter in ipairs(waiters) do
  if waiter.member == winner then
    rows[index] = { 'granted', granted, left }
  elseif not rows[index] then
    rows[index] = { 'waiting', redis.call('ZRANK', line, waiter.member), -1, at.last }
    if not first or rows[index][2] < first[2] then first = rows[index] end
  end
end
if first then
  if not free and not holder and first[2] == 0 then look_beside(at, holder) end
  first[3] = look_again(at, first[2])
end
return rows
