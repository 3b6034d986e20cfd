-- uses: lib/clock lib/places lib/hand_off lib/hold
-- Renews one hold of a durable client. In a grace it is claimed: if the server has forgotten it, it is written again.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: count of the hold (or empty: as it is), lease (ms), the hold as `<owner>:<request> <token> `, until when it may claim
--   (see lib/clock)
-- Returns: {renewed} | {renewed, 1} if it is lost
-- Effects: the lease is raised, and the count set; in a grace: hash with a lease, and the sequence
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local count, lease, named, begin_by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
lease = lease + kept

if renew(lock, named, count, lease) then return { 'renewed' } end
-- `grace_left`: see lib/life.
if not grace_left then return { 'renewed', 1 } end
if late(begin_by) then return late(begin_by) end
local member, token = string.match(named, '^(.*) (%d+) $')
token = tonumber(token)
local state = open_line(lock, line, places, sequence, nil, '')
-- The hold of a later grant counts, and so does Redisson's. A hold that was released in this grace is over: the claim is late.
local _, held_token = parse_hold(redis.call('HGET', lock, 'fairlock'))
local ended = parse_int(redis.call('HMGET', sequence, 'ended')[1]) or 0
local is_taken = redis.call('EXISTS', lock) == 1 and (not held_token or tonumber(held_token) > token)
if is_taken or token <= ended then return { 'renewed', 1 } end
state.last = math.max(state.last, token)
probe_rights(state, 'holder')
remove_place(state, member)
save(state)
redis.call('HSET', lock, 'fairlock', named .. (count == '' and '1' or count) .. ' -')
redis.call('PEXPIRE', lock, lease)
return { 'renewed' }
