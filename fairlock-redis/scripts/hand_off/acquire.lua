-- uses: lib/clock lib/hand_off
-- Takes the lock, or a place in the line; hands on if it finds the lock free.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, lease (ms), ttl of the place (ms), mode (`wait` or `once`), label, knows who listens (1 or 0),
--   prefix of the clients' channels, name of the lock, the key of Redisson's line (Keys::queue)
-- Returns: {granted, token, lease left ms} | {queued, rank, look again in ms or -1, whether Redisson's line exists}
--   | {busy, ms or -1}
-- Effects: hash with a lease; or ticket and place, with a time to live; sequence; a push to whoever got the lock
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, lease, ttl, mode, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local knows, client_prefix, name, other_line = ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local member = owner .. ':' .. request
local held = redis.call('HMGET', lock, owner, 'fairlock')
local holder, token = hold_of(held[2])
local at = open_line(lock, line, places, sequence, mode == 'wait' and ttl)
at.knows, at.client_prefix = knows, client_prefix
local ticket = tonumber(redis.call('ZSCORE', line, member))

-- A repeat, or a push that was lost.
if holder == member then
  return { 'granted', tonumber(token), left_of(lock, lease) }
end
-- The owner holds it under an older request, which its client has given up: a new acquisition. Where others wait they
-- come first: the new request stands behind them, and the old hold ends by its release or with its lease.
if held[1] and at.length == 0 then
  local new = grant_to(at, member, lease, label)
  if ticket then leave(at, member) end
  close_line(at)
  return { 'granted', new, tonumber(lease) }
end

if ticket then speak_again(at, member, ticket, lease, label) end
local free = redis.call('EXISTS', lock) == 0
if free then
  local winner, granted, left = hand_on(at)
  if winner == member then
    close_line(at)
    return { 'granted', granted, left }
  end
  if not winner and not ticket and not at.more then
    local new = grant_to(at, member, lease, label)
    close_line(at)
    return { 'granted', new, tonumber(lease) }
  end
end

if mode == 'once' then
  if ticket then leave(at, member) end
  if ticket or at.push then close_line(at) end
  push(at, name)
  local left = redis.call('PTTL', lock)
  return { 'busy', left == -2 and 0 or left }
end
if not ticket then
  redis.call('ZADD', line, whole(next_number(at)), member)
  speak(at, member, 0, lease, whole(now), label)
end
sweep(at)
keep_line_if_half_is_over(at)
close_line(at)
push(at, name)
local rank = redis.call('ZRANK', line, member)
-- Only for a warning: who has no right to that key does without it. So it is not in KEYS.
return { 'queued', rank, look_again(at, rank), redis.pcall('EXISTS', other_line) == 1 and 1 or 0 }
