-- uses: lib/clock lib/hand_off
-- Gives the lock up and makes the next in line the holder; with a new request only if somebody waits, and behind them.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: owner, request, token, knows who listens (1 or 0), prefix of the clients' channels, name of the lock,
--   new request (or empty), its lease (ms), its ttl (ms), its label
-- Returns: {released} | {not_held} | {kept} | {queued, rank, look again in ms or -1}
-- Effects: hash deleted, or the next one's; sequence; a push to whoever got the lock; ticket and place of the new request
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, knows, client_prefix, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local again, again_lease, again_ttl, again_label = ARGV[7], ARGV[8], ARGV[9], ARGV[10]

local held = redis.call('HMGET', lock, owner, 'fairlock')
local at = open_line(lock, line, places, sequence, again ~= '' and again_ttl)
at.knows, at.client_prefix = knows, client_prefix
local member = again ~= '' and owner .. ':' .. again
local ticket = member and tonumber(redis.call('ZSCORE', line, member))

local mine = held[1] and held[2] == owner .. ':' .. request .. ' ' .. token
if mine and member and not (at.length > 0 and (first_present(at) or at.more)) then return { 'kept' } end
-- Never refused, also by a full server; and what follows a write is not refused either.
if mine then redis.call('DEL', lock) end
if ticket then
  -- A repeat, whose first answer was lost: the new request is in line.
  speak_again(at, member, ticket, again_lease, again_label)
elseif mine and member then
  redis.call('ZADD', line, whole(next_number(at)), member)
  speak(at, member, 0, again_lease, whole(now), again_label)
  keep_line_if_half_is_over(at)
  at.length = at.length + 1
end
local winner = hand_on(at)
if winner or ticket or (mine and member) then
  close_line(at)
  push(at, name)
end
if not member then return { mine and 'released' or 'not_held' } end
-- The new request has the lock by now: asking at once tells the token.
if winner == member or hold_of(held[2]) == member then return { 'queued', 0, 0 } end
local rank = redis.call('ZRANK', line, member)
if not rank then return { 'not_held' } end
return { 'queued', rank, look_again(at, rank) }
