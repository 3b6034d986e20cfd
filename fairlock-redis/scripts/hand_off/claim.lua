-- uses: lib/clock lib/hand_off
-- Renews one hold. In a grace it is claimed: if the server has forgotten it, it is written again.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: count of the hold (or empty: as it is), lease (ms), the hold as `<owner>:<request> <token> `
-- Returns: {renewed} | {renewed, 1} if it is lost
-- Effects: the lease is raised, and the count set; in a grace: hash with a lease, and the sequence
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local count, lease, named = ARGV[1], ARGV[2], ARGV[3]

local hold = redis.call('HGET', lock, 'fairlock')
if hold and string.find(hold, named, 1, true) == 1 then
  local left = redis.call('PTTL', lock)
  local held_count, rest = string.match(hold, '^(%d+)(.*)$', #named + 1)
  -- As in `renew_holds`.
  if count ~= '' and held_count ~= count then
    redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
    redis.call('HSET', lock, 'fairlock', named .. count .. (rest or ' -'))
  end
  if left < tonumber(lease) or left > 2 * tonumber(lease) + 60000 then redis.call('PEXPIRE', lock, lease) end
  return { 'renewed' }
end
--life: if not grace_left then return { 'renewed', 1 } end
--life: local member, token = string.match(named, '^(.*) (%d+) $')
--life: token = tonumber(token)
--life: local state = open_line(lock, line, places, sequence, nil, '')
--life: -- The hold of a later grant counts, and so does Redisson's. A hold that was released in this grace is over: the claim is late.
--life: local _, held_token = parse_hold(hold)
--life: local ended = parse_int(redis.call('HMGET', sequence, 'ended')[1]) or 0
--life: local is_taken = redis.call('EXISTS', lock) == 1 and (not held_token or tonumber(held_token) > token)
--life: if is_taken or token <= ended then return { 'renewed', 1 } end
--life: state.last = math.max(state.last, token)
--life: probe_rights(state, 'holder')
--life: remove_place(state, member)
--life: save(state)
--life: redis.call('HSET', lock, 'fairlock', named .. (count == '' and '1' or count) .. ' -')
--life: redis.call('PEXPIRE', lock, lease)
--life: do return { 'renewed' } end
return { 'renewed', 1 }
