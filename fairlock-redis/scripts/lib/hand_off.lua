-- The line of the hand-off: a sorted set of members by ticket, and a hash of their places.
--
-- A member is one request: owner, a colon, the request in hex. Its place is `<deadline> <lease> <ticket> <label>`. A letter
-- may follow the ticket: `d` while the client says that it is deaf (has lost its subscription), `p` for a parked place.
--
-- The holder is the lock's field `fairlock`: `<member> <token> <hold count> <mark><label>`. The mark is `-`; or `+` if
-- the release has to look at Redisson's line; or `!` if it can't be done by the scripts' fast parts.
--
-- The sequence's field `state` is `<last> <turns> <served> <pulse> <lag> <ttl> <ttl until>`, in numbers that are named in
-- `open_line`. Behind a `!`, three more follow: `<reserved until> <rests until> <reserved for>`. The scripts' fast parts read
-- the first form only.
--
-- The deadline is on the line clock. That follows the server's clock, but advances by at most half of the least place TTL
-- between two scripts: so live waiters are not overdue after the server was stopped, or when no script touched the line.
--
-- An absent waiter (overdue, or not subscribed) is parked behind all others and keeps its ticket: its next heartbeat puts
-- it back. Tickets and tokens come from one sequence, so both grow, even if the keys are lost.
--
-- A waiter sends its ticket with each heartbeat. So a place that is gone is restored where it was: that of a stopped waiter
-- whose grant has ended; one that was swept; a whole line that was evicted, deleted, or lost by a fail-over. The field
-- `served` is the greatest ticket that was granted the lock; the field `kicked` lists the members whose places an operator
-- removed.

-- Added to the ticket of a parked member.
local PARKED = 4503599627370496
local SWEEP_AFTER = 60000
-- How many absent waiters one script examines at most.
local SCAN_LIMIT = 256
-- Keys expire by the server's clock, which may be set forward by hours.
local KEEP_LINE_FOR = 86400000
local KICKS_KEPT = 100
-- Our turns are counted by letters, from `A` for none to `Q` for 16. After the last one Redisson's line is looked at, and a
-- free lock is reserved for it for so long.
local OUR_LAST_TURN = 'Q'
local RESERVE_FOR = 1000
-- How often the first of our line looks meanwhile, and for how long after that while an owner of theirs holds the lock.
local POLL_EVERY = 20
local POLL_FOR = 60000
-- The channel of a client begins with this.
local CLIENT_PREFIX = 'fairlock:'
-- No member has this name.
local NOBODY = 'nobody'

-- Reads what a script needs to know of the line, and every key that may be of another type. Writes nothing.
-- `options` are letters: `w` the request waits, `s` the server knows all listeners, `r` Redisson's line may be looked at, `d`
-- the client is deaf.
local function open_line(lock, line, places, sequence, ttl, options)
  -- HMGET: it is used later, and a missing right has to be found before the first write.
  local saved = redis.call('HMGET', sequence, 'state')[1] or ''
  local last, turn, served, pulse, lag, least_ttl, least_ttl_until, more =
    string.match(saved, '^!?(%d+) ([A-Q]) (%d+) (%d+) (%-?%d+) (%d+) (%d+)(.*)$')
  local reserved_until, rests_until, reserved_for = string.match(more or '', '^ (%d+) (%d+) (.*)$')
  -- A line whose state was lost, or garbled by another program, starts anew.
  pulse, least_ttl = parse_int(pulse) or now, parse_int(least_ttl) or 5000
  local clock = pulse - (tonumber(lag) or 0) + math.min(math.max(0, now - pulse), math.floor(least_ttl / 2))
  if clock < 0 or clock > 4e15 then clock = now end
  return {
    lock = lock, line = line, places = places, sequence = sequence, ttl = tonumber(ttl) or least_ttl,
    -- The last number that was drawn, the turn (see `redisson_is_due`), and the greatest ticket that was granted the lock.
    last = parse_int(last) or 0, turn = turn or 'A', served = parse_int(served) or 0,
    -- The line clock; the least TTL of the places in line, and until when it counts.
    clock = clock, least_ttl = least_ttl, least_ttl_until = parse_int(least_ttl_until) or 0,
    -- Until when the free lock is reserved for Redisson's line, and for which of its waiters.
    reserved_until = parse_int(reserved_until) or 0, reserved_for = reserved_for,
    -- No waiter is next before this: a lost line comes back.
    rests_until = parse_int(rests_until) or 0,
    length = redis.call('ZCARD', line), n_places = redis.call('HLEN', places), asking = {},
    waits = string.find(options, 'w', 1, true), is_deaf = string.find(options, 'd', 1, true),
    knows_listeners = string.find(options, 's', 1, true), may_look = string.find(options, 'r', 1, true),
  }
end

local function next_number(state)
  state.last = math.max(state.last + 1, now_micros)
  return state.last
end

-- Stands before the first write of a script that writes more than once. Redis undoes nothing if a command in the middle is
-- refused. So each command that may follow is used here first, without effect, and a missing right ends the script before
-- anything is written. HSET and DEL can't be used without effect: so an HSET that changes at most the line clock is the
-- next write, then comes DEL, then the rest.
--
-- A full server refuses the first write of a script, or none. The first write of a newcomer (`caller` is `newcomer`, or
-- `tail`, which can only queue) is ZADD, which it refuses. Holders and waiters continue, also one whose place is `restored`:
-- their first write is PEXPIRE, which it never refuses. For a `holder`, no rank will be asked for.
local function probe_rights(state, caller)
  local is_new = caller == 'tail' or caller == 'newcomer'
  if is_new then redis.call('ZADD', state.line, 'XX', 0, NOBODY) end
  state.is_new = redis.call('PEXPIRE', state.sequence, format_int(sequence_ttl(state.last))) == 0
  if state.length == 0 and caller ~= 'restored' then return end
  if not is_new then redis.call('ZADD', state.line, 'XX', 0, NOBODY) end
  if caller ~= 'tail' then
    redis.call('ZREM', state.line, NOBODY)
    redis.call('HDEL', state.places, NOBODY)
    state.head = redis.call('ZRANGE', state.line, 0, 0)
  end
  if caller == 'holder' then return end
  state.line_ttl = redis.call('PTTL', state.line)
  redis.call('ZRANK', state.line, NOBODY)
end

-- Keeps the least TTL of the line until no waiter with so short a TTL can still be present. Then it is forgotten.
local function count_ttl(state)
  if state.length == 0 or state.ttl <= state.least_ttl or state.clock >= state.least_ttl_until then
    state.least_ttl, state.least_ttl_until = state.ttl, state.clock + state.ttl
  end
end

-- Whether the next grant needs more than the scripts' fast parts know.
local function is_marked(state)
  return now < state.reserved_until + POLL_FOR or state.clock < state.rests_until
end

-- Saves the state, and further fields and values.
local function save(state, ...)
  local text = string.format('%016.0f %s %.0f %.0f %.0f %.0f %.0f', state.last, state.turn, state.served, now,
    now - state.clock, state.least_ttl, state.least_ttl_until)
  if is_marked(state) then
    text = string.format('!%s %.0f %.0f %s', text, state.reserved_until, state.rests_until, state.reserved_for or '')
  end
  redis.call('HSET', state.sequence, 'state', text, ...)
  if state.is_new then
    redis.call('PEXPIRE', state.sequence, format_int(sequence_ttl(state.last)))
    state.is_new = false
  end
end

-- Client, number and request.
local function split_member(member)
  return string.match(member, '^(.*):([^:]*):([^:]*)$')
end

local function parse_place(member, text)
  -- A member that is no request of ours can't be granted anything.
  if not text or not split_member(member) then return nil end
  local deadline, lease, ticket, letter, label = string.match(text, '^(%d+) (%d+) (%d+)([dp]?) (.*)$')
  deadline, lease, ticket = parse_int(deadline), parse_int(lease), parse_int(ticket)
  if not deadline or not lease or not ticket then return nil end
  return { deadline = deadline, lease = lease, ticket = ticket, label = label, is_deaf = letter == 'd',
    is_parked = letter == 'p' }
end

local function format_place(deadline, lease, ticket, letter, label)
  return string.format('%.0f %.0f %.0f%s %s', deadline, lease, ticket, letter, label)
end

local function place_of(state, member)
  return parse_place(member, redis.call('HMGET', state.places, member)[1])
end

-- Writes the place of a member that is heard now.
local function write_place(state, member, ticket, lease, label)
  count_ttl(state)
  redis.call('HSET', state.places, member,
    format_place(state.clock + state.ttl, lease, ticket, state.is_deaf and 'd' or '', label))
  state.asking[member] = true
  state.head = nil
end

local function add_place(state, member, ticket, lease, label)
  write_place(state, member, ticket, lease, label)
  redis.call('ZADD', state.line, format_int(ticket), member)
end

-- The member was heard: its place lives on at its ticket, or at the tail if that ticket is none of ours. Returns the ticket.
-- Without `label` the place keeps the one it has.
local function refresh_place(state, member, ticket, lease, label)
  label = label or (place_of(state, member) or {}).label or ''
  local is_in_line = ticket >= 0 and ticket < PARKED
  if not is_in_line then
    ticket = ticket >= PARKED and ticket < 2 * PARKED and ticket - PARKED or next_number(state)
  end
  write_place(state, member, ticket, lease, label)
  if not is_in_line then redis.call('ZADD', state.line, format_int(ticket), member) end
  return ticket
end

local function remove_place(state, member)
  state.length = state.length - redis.call('ZREM', state.line, member)
  redis.call('HDEL', state.places, member)
end

-- Either key may be new although the other is not: evicted, or deleted by hand.
local function keep_line(state)
  local keep = math.max(KEEP_LINE_FOR, 12 * state.ttl)
  if state.length == 0 or state.n_places == 0 or state.line_ttl < keep / 2 then
    redis.call('PEXPIRE', state.line, keep)
    redis.call('PEXPIRE', state.places, keep)
  end
end

-- Whether a waiter without a place gets it back at its ticket. Not if the sequence can't have given out that ticket, which
-- would let newcomers stand ahead of it. (An emptied sequence begins at the clock, which is past every former ticket if it
-- is right.) Not if an operator has removed the place since.
local function may_restore(state, member, ticket)
  if not ticket or ticket <= 0 or ticket >= PARKED or ticket > math.max(state.last, now_micros) then return false end
  local kicked = redis.call('HMGET', state.sequence, 'kicked')[1] or ''
  for entry in string.gmatch(kicked, '[^\n]+') do
    local kicked_member, last = string.match(entry, '^(.*) (%d+)$')
    if kicked_member == member and ticket <= tonumber(last) then return false end
  end
  return true
end

-- While a lost line comes back, no waiter is next.
local function is_resting(state)
  --life: if grace_left then return true end
  return state.clock < state.rests_until
end

-- Restores a place at its ticket. The number that is drawn is later than any grant of the former place, and so tells which
-- pushes are old. A ticket that was never served shows that the line was lost: others may have stood ahead, and send a
-- heartbeat within a third of their TTL. So the line rests for half of the TTL.
local function restore_place(state, member, ticket, lease, label)
  if ticket > state.served and state.clock >= state.rests_until then
    state.rests_until = state.clock + math.floor(state.ttl / 2)
  end
  next_number(state)
  add_place(state, member, ticket, lease, label)
  state.length = state.length + 1
  return ticket
end

-- The field `kicked` with one more entry: tickets of this member up to the last number are not restored.
local function kicked_with(state, member)
  local kicked, kept = redis.call('HMGET', state.sequence, 'kicked')[1] or '', {}
  for entry in string.gmatch(kicked, '[^\n]+') do kept[#kept + 1] = entry end
  kept[#kept + 1] = member .. ' ' .. format_int(state.last)
  return table.concat(kept, '\n', math.max(1, #kept - KICKS_KEPT + 1))
end

-- Whether a push would reach the waiter. A server that is not a cluster knows its subscribers; each client is looked up
-- once, and an error counts as yes. A client that says that it is deaf is alive: its waiter finds the grant by its own
-- heartbeat within a third of the place's TTL, when two thirds are left of the lease. If it were passed over as absent, it
-- would never get a turn beside others.
local function is_reachable(state, member, place)
  if state.asking[member] or place.is_deaf or not state.knows_listeners then return true end
  local client = split_member(member)
  if not client then return false end
  state.is_subscribed = state.is_subscribed or {}
  if state.is_subscribed[client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', CLIENT_PREFIX .. client)
    state.is_subscribed[client] = answer.err ~= nil or tonumber(answer[2]) ~= 0
  end
  return state.is_subscribed[client]
end

-- Finds the first present waiter, and lists the absent ones ahead of it in `state.absent`. Writes nothing. As a rule the
-- head is present; if not, larger and larger parts of the line are read.
--
-- `state.more_to_scan`: the absent are more than one script may examine. Once they are parked, the next script continues
-- behind them. It has to follow at once, since no other client looks before the next heartbeat: a waiter is told to look
-- again in 0 ms, and a releaser runs the script again (`hand_off.rs`).
local function first_present(state)
  state.absent, state.more_to_scan = {}, nil
  local rank, step = 0, 1
  while rank < SCAN_LIMIT do
    local members = rank == 0 and state.head or redis.call('ZRANGE', state.line, rank, rank + step - 1)
    if #members == 0 then return nil end
    local texts = redis.call('HMGET', state.places, unpack(members))
    for index, member in ipairs(members) do
      local place = parse_place(member, texts[index])
      if place and place.is_parked then return nil end
      local is_present = place
        and (state.asking[member] or (place.deadline > state.clock and is_reachable(state, member, place)))
      if is_present then return member, place end
      state.absent[#state.absent + 1] = { member = member, place = place }
    end
    if #members < step then return nil end
    rank = rank + step
    step = math.min(8 * step, SCAN_LIMIT - rank)
  end
  state.more_to_scan = true
end

-- Parks the absent waiters, and removes entries without a place.
local function park_absent(state)
  local parked, marked, gone = {}, {}, {}
  for _, absent in ipairs(state.absent) do
    local member, place = absent.member, absent.place
    if place then
      parked[#parked + 1] = format_int(place.ticket + PARKED)
      parked[#parked + 1] = member
      marked[#marked + 1] = member
      marked[#marked + 1] = format_place(place.deadline, place.lease, place.ticket, 'p', place.label)
    else
      gone[#gone + 1] = member
    end
  end
  if #parked > 0 then
    redis.call('ZADD', state.line, unpack(parked))
    redis.call('HSET', state.places, unpack(marked))
  end
  if #gone > 0 then
    state.length = state.length - redis.call('ZREM', state.line, unpack(gone))
    redis.call('HDEL', state.places, unpack(gone))
  end
end

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

-- Redisson's fair lock has its own line for this lock, which our hand-offs tell nothing. So that line is looked at after
-- every 16th grant of ours. If its first waiter is alive and subscribed, the free lock is reserved for it until its turn has
-- come, for a second at most.
--
-- Its keys are no KEYS, so that a user without rights to them can lock, too: that user names no line, or a look is refused.
-- A cluster does not know its subscribers: there a dead waiter is waited for until its time in that line is over.
local function first_in_redisson(state)
  if not state.may_look then return nil end
  local first = redis.pcall('LINDEX', redisson_name(state, 'redisson_lock_queue:'), 0)
  if type(first) ~= 'string' then return nil end
  local timeout = redis.pcall('ZSCORE', redisson_name(state, 'redisson_lock_timeout:'), first)
  if type(timeout) ~= 'string' or tonumber(timeout) <= now then return nil end
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
  if not state.may_look then return true end
  local first = redis.pcall('LINDEX', redisson_name(state, 'redisson_lock_queue:'), 0)
  return type(first) == 'table' or first == state.reserved_for
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

-- Removes places that were silent for a minute more, a few a call.
local function sweep(state)
  if state.length == 0 then return end
  for _, member in ipairs(redis.call('ZRANGE', state.line, PARKED, '+inf', 'BYSCORE', 'LIMIT', 0, 3)) do
    local place = place_of(state, member)
    if not place or place.deadline + SWEEP_AFTER < state.clock then remove_place(state, member) end
  end
end

-- Comes after every write: tells the new holder, or both lines that the lock is reserved for Redisson's.
local function push(state)
  if state.wakes_redisson then redis.pcall('PUBLISH', redisson_name(state, 'redisson_lock__channel:') .. ':' .. state.reserved_for, '0') end
  if not state.push then return end
  local client, number, request = split_member(state.push.member)
  local message = 'look ' .. number .. ' ' .. state.lock
  if state.push.token then
    message = 'granted ' .. number .. ' ' .. request .. ' ' .. format_int(state.push.token) .. ' ' .. state.lock
  end
  redis.pcall('PUBLISH', CLIENT_PREFIX .. client, message)
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

-- What is left of a hold's lease. A hold that was made endless by hand (PERSIST) gets an end again.
local function lease_left(lock, lease)
  local left = redis.call('PTTL', lock)
  if left >= 0 then return left end
  redis.call('PEXPIRE', lock, lease)
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
  local left = redis.pcall('PTTL', redisson_name(state, 'redisson_lock_queue:'))
  if type(left) == 'table' then return 2 end
  state.polls_redisson = not holder and (state.polls_redisson or left ~= -2)
  return left ~= -2 and 1 or 0
end

--life: -- In a grace: the hold with this token is over, so a claim that comes later is late.
--life: local function end_hold(state, token)
--life:   local ended = parse_int(redis.call('HMGET', state.sequence, 'ended')[1]) or 0
--life:   save(state, 'ended', format_int(math.max(ended, tonumber(token) or 0)))
--life: end
