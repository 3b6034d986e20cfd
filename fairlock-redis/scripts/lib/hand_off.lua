-- A lock with one holder, and who gets it next.
--
-- The holder is the lock's field `fairlock`: `<member> <token> <hold count> <mark><label>`. The mark is `-`; or `+` if
-- the release has to look at Redisson's line; or `!` if it can't be done by the scripts' fast parts.

-- Our turns are counted by letters, from `A` for none to `Q` for 16. After the last one Redisson's line is looked at, and a
-- free lock is reserved for it for so long.
local OUR_LAST_TURN = 'Q'
local RESERVE_FOR = 1000
-- How often the first of our line looks meanwhile, and for how long after that while an owner of theirs holds the lock.
local POLL_EVERY = 20

local function take_turn(state)
  state.turn = string.char(string.byte(state.turn == OUR_LAST_TURN and 'A' or state.turn) + 1)
end

-- Makes the member the holder. The lock does not exist, or is this owner's. PEXPIRE has been tried (`probe_rights`), so no
-- hash stays without an end.
local function grant_to(state, member, lease, label)
  local token = next_number(state)
  take_turn(state)
  state.reserved_for = ''
  local mark = is_marked(state) and '!' or state.turn == OUR_LAST_TURN and '+' or '-'
  redis.call('HSET', state.lock, 'fairlock', member .. ' ' .. format_int(token) .. ' 1 ' .. mark .. label)
  --life: lease = lease + kept
  redis.call('PEXPIRE', state.lock, format_int(lease))
  save(state)
  return token
end

local function is_free(lock)
  return redis.call('PTTL', lock) == -2
end

-- A key or channel of Redisson, as Redisson spells it.
local function redisson_name(state, prefix)
  return prefix .. (string.find(state.lock, '{', 1, true) and state.lock or '{' .. state.lock .. '}')
end

-- A look at Redisson's line. A refused one is an entry in the server's ACL LOG: so a script looks no more then, and says so in its
-- reply (`state.refused`), and the client doesn't let the next ones look.
local function look(state, ...)
  if not state.may_look or state.refused then return nil end
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' then return answer end
  state.refused = 2
  return nil
end

-- Redisson's fair lock has its own line for this lock, which our hand-offs tell nothing. So that line is looked at after
-- every 16th grant of ours. If its first waiter is alive and subscribed, the free lock is reserved for it until its turn has
-- come, for a second at most.
--
-- Its keys are no KEYS, so that a user without rights to them can lock, too: that user names no line, or a look is refused.
-- A cluster does not know its subscribers: there a dead waiter is waited for until its time in that line is over.
local function first_in_redisson(state)
  local first = look(state, 'LINDEX', redisson_name(state, 'redisson_lock_queue:'), 0)
  if not first then return nil end
  local timeout = look(state, 'ZSCORE', redisson_name(state, 'redisson_lock_timeout:'), first)
  if not timeout or tonumber(timeout) <= now then return nil end
  if state.knows_listeners then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', redisson_name(state, 'redisson_lock__channel:') .. ':' .. first)
    if answer.err == nil and tonumber(answer[2]) == 0 then return nil end
  end
  return first
end

-- Whether Redisson's line has a waiter, and its turn is due: our 16th grant is over, or our line has ended soon after that
-- line was seen. Only looks, and only once a script.
local function redisson_is_due(state)
  local has_ended = state.length == 0 and state.knows_listeners and now < state.reserved_until + POLL_FOR
  if state.turn ~= OUR_LAST_TURN and not has_ended then return false end
  if state.redisson_first == nil then state.redisson_first = first_in_redisson(state) or false end
  return state.redisson_first ~= false
end

-- Whether a reservation holds. It ends once its waiter has left the head of Redisson's line: its turn has come. Each grant of
-- ours ends it, too: the same waiter may have come, gone and asked again meanwhile, and would not be told of this time.
local function reservation_holds(state)
  -- More time than RESERVE_FOR is left only after the clock was set back.
  local left = state.reserved_until - now
  if (state.reserved_for or '') == '' or left <= 0 or left > RESERVE_FOR then return false end
  local first = look(state, 'LINDEX', redisson_name(state, 'redisson_lock_queue:'), 0)
  return first == state.reserved_for or first == nil and (not state.may_look or state.refused ~= nil)
end

-- The lock is free: whether it is reserved for Redisson's line, from before or from now on. Writes by HSET alone, whose
-- right has been probed.
local function reserve_for_redisson(state)
  state.is_reserved = reservation_holds(state)
  if state.is_reserved or not redisson_is_due(state) then return state.is_reserved end
  state.is_reserved, state.reserved_until, state.reserved_for = true, now + RESERVE_FOR, state.redisson_first
  -- Counted like a grant, so that line is looked at again after 16 more.
  take_turn(state)
  save(state)
  state.wakes_redisson = true
  -- Our first in line is told to look: it has to know when the reservation ends, and to watch the waiter that comes.
  local member = state.length > 0 and first_present(state)
  state.push = member and not state.asking[member] and { member = member }
  return true
end

-- The lock is free: hands it to the first present waiter, which gets a push unless it is the caller. Returns that waiter.
-- The lock stays free if `state.more_to_scan` (the next script continues), if `state.is_reserved`, and while the line rests.
local function hand_on(state)
  if is_resting(state) or reserve_for_redisson(state) then return nil end
  local member, place = first_present(state)
  park_absent(state)
  if not member then return nil end
  local lease = math.max(1, math.min(place.deadline - state.clock, place.lease))
  state.served = math.max(state.served, place.ticket)
  local token = grant_to(state, member, lease, place.label)
  remove_place(state, member)
  state.push = not state.asking[member] and { member = member, token = token }
  return member, token, lease
end

-- Comes after every write: tells the new holder, or both lines that the lock is reserved for Redisson's.
local function push(state)
  if state.wakes_redisson then redis.pcall('PUBLISH', redisson_name(state, 'redisson_lock__channel:') .. ':' .. state.reserved_for, '0') end
  if state.push then tell(state, state.push.member, state.push.token) end
end

-- For a reply: 1 if the lock stays free only because one script may not examine the whole line.
local function more_to_scan(state)
  return state.more_to_scan and not state.is_reserved and 1 or 0
end

-- No waiter in line gets the free lock, so waiters for a plain lock of this name may, Redisson's included.
local function wake_plain(state)
  if not state.is_reserved then redis.pcall('PUBLISH', redisson_name(state, 'redisson_lock__channel:'), '0') end
end

-- When a waiter looks without a push: when the hold ends, if it is first in line, or the first of a client whose next
-- heartbeat would be later than that. For all waiters ahead may have died with the holder. While the line rests: after that.
--
-- `state.polls_redisson`: a Redisson owner has the lock, and Redisson tells its own line of the end, but not ours. So the
-- only way in is to look just between two of its turns. How many of them pass until then is, on average, the time between
-- two looks divided by the gap between two turns, however long these last; with heartbeats alone it would take for ever.
local function recheck_in(state, rank)
  local left = redis.call('PTTL', state.lock)
  if left == -2 then
    --life: if grace_left then return grace_left end
    if is_resting(state) then return state.rests_until - state.clock end
    if not state.is_reserved then return 0 end
    return rank == 0 and math.min(POLL_EVERY, state.reserved_until - now + 1) or -1
  end
  if rank == 0 and state.polls_redisson then return POLL_EVERY end
  if left < 0 or rank > 0 and 3 * left >= state.ttl then return -1 end
  return left + 1
end

-- What is left of a hold's lease. A hold that was made endless by hand (PERSIST) gets an end again; so does one that is only
-- kept, since the holder itself asks.
local function lease_left(lock, lease)
  local left = redis.call('PTTL', lock)
  --life: if grace_left then return 0 end -- not granted in a grace, so nothing is raised
  --life: left = left - kept
  if left >= 0 then return left end
  redis.call('PEXPIRE', lock, lease)
  --life: redis.call('PEXPIRE', lock, lease + kept)
  return tonumber(lease)
end

-- The member and the token in the field `fairlock`.
local function parse_hold(field)
  if not field then return nil end
  return string.match(field, '^(.-) (%d+) %d+ [-+!]')
end

-- Whether the lock is held by another discipline, beside Redisson's line. `holder` is the one by ours.
-- Returns what a reply says of that line: 1 if it exists, 2 if the user may not look.
local function check_redisson(state, holder)
  state.polls_redisson = not holder and state.reserved_until > 0 and now < state.reserved_until + POLL_FOR
  if not state.may_look then return 0 end
  local left = look(state, 'PTTL', redisson_name(state, 'redisson_lock_queue:'))
  if not left then return 2 end
  state.polls_redisson = not holder and (state.polls_redisson or left ~= -2)
  return left ~= -2 and 1 or 0
end

--life: -- In a grace: the hold with this token is over, so a claim that comes later is late. The next token is greater, also where
--life: -- the clock is behind.
--life: local function end_hold(state, token)
--life:   local ended = math.max(parse_int(redis.call('HMGET', state.sequence, 'ended')[1]) or 0, tonumber(token) or 0)
--life:   state.last = math.max(state.last, ended)
--life:   state.is_new = redis.call('PEXPIRE', state.sequence, format_int(sequence_ttl(state.last))) == 0
--life:   save(state, 'ended', format_int(ended))
--life: end
--life: -- In a grace: every hold is over that was granted before its end, known to the server or not.
--life: local function end_all_holds(state, holder_token)
--life:   end_hold(state, math.max(state.last, now_micros + grace_left * 1000, tonumber(holder_token) or 0))
--life: end
