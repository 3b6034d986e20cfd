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

local mine = held[1] and held[2] == owner .. ':' .. request .. ' ' .. token
if mine and again ~= '' and not (at.length > 0 and (first_present(at) or at.more)) then return { 'kept' } end
-- Never refused, also by a full server; and what follows a write is not refused either.
if mine then redis.call('DEL', lock) end
if mine and again ~= '' then
  local member = owner .. ':' .. again
  redis.call('ZADD', line, whole(next_number(at)), member)
  speak(at, member, 0, again_lease, whole(now), again_label)
  at.speaking[member] = nil
  at.length = at.length + 1
end
local winner = hand_on(at)
if winner or again ~= '' then
  close_line(at)
  push(at, name)
end
if not mine then return { 'not_held' } end
if again == '' then return { 'released' } end
local rank = redis.call('ZRANK', line, owner .. ':' .. again) or 0
return { 'queued', rank, look_again(at, rank) }
