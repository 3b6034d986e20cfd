-- uses: lib/clock lib/grant lib/kind lib/places lib/hand_off lib/owner
-- Takes the lock from its holder, and makes the next in line the holder.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: options (see lib/places), until when it may take the lock (see lib/clock), and to take one hold only, at any time, its
--   member, token and a space
-- Returns: {taken, 1 if there is more of the line to scan} | {not_held, as before}
-- Effects: hash deleted, or the next holder's; the former holder and the next one are told
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local options, begin_by, named = ARGV[1], ARGV[2], ARGV[3]

if not named and late(begin_by) then return late(begin_by) end
local holder = read_holder(lock, read_last_grant(sequence))
local refused = not_exclusive(holder)
if refused then return refused end
local state = open_line(lock, line, places, sequence, nil, options)
if named and not (holder and string.find(holder.value, named, 1, true) == 1) then
  --life: if grace_left then end_hold(state, string.match(named, ' (%d+) $')) end
  return { 'not_held', 0 }
end

if state.length > 0 then
  probe_rights(state, 'holder')
  -- Changes at most the line clock, and shows that HSET may be used.
  if holder then redis.call('HSET', lock, holder.field, holder.value) else save(state) end
end
--life: if grace_left and named then end_hold(state, holder[3]) end
--life: if grace_left and not named then end_all_holds(state, holder and holder[3]) end
if holder then redis.call('DEL', lock) end
if not (state.length > 0 and hand_on(state)) then wake_plain(state) end
if holder then notify_taken(holder, lock) end
push(state)
return { holder and 'taken' or 'not_held', more_to_scan(state) }
