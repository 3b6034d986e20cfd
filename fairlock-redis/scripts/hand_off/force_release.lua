-- uses: lib/clock lib/hand_off lib/owner
-- Takes the lock from its holder, and makes the next in line the holder.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: whether the server knows all listeners (1 or 0), prefix of the clients' channels, name of the lock,
--   channel of plain waiters, keys of Redisson's line (Keys::queue, or empty) and its times (Keys::timeouts)
-- Returns: {taken, 1 if there is more of the line to scan} | {not_held, as before}
-- Effects: hash deleted, or the next holder's; the former holder and the next one are told
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local knows_listeners, client_prefix, name, plain_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local redisson_queue, redisson_timeouts = ARGV[5], ARGV[6]

local owner, count = owner_in(lock)
local field = redis.call('HGET', lock, 'fairlock')
local last_grant = redis.call('HMGET', sequence, 'owner', 'token')
local state = open_line(lock, line, places, sequence, nil,
  { knows_listeners, client_prefix, name, plain_channel, redisson_queue, redisson_timeouts })

local existed = owner or field
if state.length > 0 then
  probe_rights(state, 'holder')
  -- Changes at most the line clock, and shows that HSET may be used.
  if owner then redis.call('HSET', lock, owner, count) else save_clock(state) end
end
if existed then redis.call('DEL', lock) end
if not (state.length > 0 and hand_on(state)) then wake_plain(state) end
local member, token = parse_hold(field)
local client, number = split_member(member or '')
-- A holder of another discipline is known by the record of the last grant alone.
if not client and owner and last_grant[1] == owner then
  client, number = string.match(owner, '^(.*):(.-)$')
  token = last_grant[2]
end
if client and token then
  redis.pcall('PUBLISH', client_prefix .. client, 'taken ' .. number .. ' ' .. token .. ' ' .. name)
end
push(state)
return { existed and 'taken' or 'not_held', more_to_scan(state) }
