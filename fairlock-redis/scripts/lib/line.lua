-- The line of a lock: a sorted set of members by ticket. The record beside it is a hash: the sequence, and a field for each place.
--
-- A member is one request: `<client>:<number>:<request in hex>`, so no member has the name of another field. Its place is
-- `<deadline> <lease> <ticket> <units>/<capacity> <label>`. A letter may follow the ticket: `d` while the client says that it is
-- deaf (has lost its subscription), `p` for a parked place.
--
-- The record's field `state` is `<last> <born> <pulse> <lag> <ttl> <ttl until>`, in numbers that are named in `open_line`. While
-- the line rests a `!` stands in front, and `<rests until>` follows. The scripts' fast parts read the first form only.
--
-- The deadline is on the line clock. That follows the server's clock, but advances by at most half of the least place TTL
-- between two scripts: so live waiters are not overdue after the server was stopped, or when no script touched the line. That of
-- an empty line moves only when a waiter comes or the lock is granted, since the fast part of a release does not see it. It still
-- matters while a line rests (`rests_until`).
--
-- An absent waiter (overdue, or not subscribed) is parked behind all others and keeps its ticket: its next heartbeat puts
-- it back. Tickets and tokens come from one sequence, so both grow, even if the keys are lost.
--
-- A waiter sends its ticket with each ask and each heartbeat. An ask restores a place that is gone where it was: that of a stopped
-- waiter whose grant has ended; one that was swept; one that was forgotten. A heartbeat restores only what was forgotten (evicted,
-- deleted, or lost by a fail-over): any other place was removed, and the heartbeat may be late (`was_forgotten`). The field `kicked`
-- lists the members whose places an operator removed.

-- @include lib/clock: now_micros, now, format_int, parse_int, RAISED_EVERY, KEPT_FOR, sequence_ttl

-- Added to the ticket of a parked member.
local PARKED = 4503599627370496
local SWEEP_AFTER = 60000
-- How many absent waiters one script examines at most.
local SCAN_LIMIT = 256
local KICKS_KEPT = 10000 -- in characters: a hundred
-- The channel of a client begins with this.
local CLIENT_PREFIX = 'fairlock:'
-- No member has this name.
local NOBODY = 'nobody'

-- Reads what a script needs to know of the line, and every key that may be of another type. Writes nothing.
-- `options` are letters: `w` the request waits, `s` the server knows all listeners, `d` the client is deaf; and `u` with a number, if the server knows them only of waiters with no smaller ticket: of earlier ones some
-- are not back after a fault.
local function open_line(lock, line, record, ttl, options)
  -- HMGET: it is used later, and a missing right has to be found before the first write.
  local saved = redis.call('HMGET', record, 'state', 'served')
  local last, born, pulse, lag, least_ttl, least_ttl_until, more =
    string.match(saved[1] or '', '^!?(%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+)(.*)$')
  -- A line whose state was lost, or garbled by another program, starts anew.
  pulse, least_ttl, lag = parse_int(pulse) or now, parse_int(least_ttl) or 5000, tonumber(lag) or 0
  local clock = pulse - lag + math.min(math.max(0, now - pulse), math.floor(least_ttl / 2))
  if clock < 0 or clock > 4e15 then clock, pulse, lag = now, now, 0 end
  local length = redis.call('ZCARD', line)
  return {
    lock = lock, line = line, record = record, ttl = tonumber(ttl) or least_ttl,
    -- The last number that was drawn.
    last = parse_int(last) or 0,
    -- The first number that was drawn; and the greatest ticket from before that was granted the lock: of a record that was lost.
    born = parse_int(last) ~= 0 and parse_int(born) or now_micros, served = parse_int(saved[2]) or 0,
    -- The line clock, whether this script moves it, when it was last moved, and how far it was behind the server's then;
    -- the least TTL of the places in line, and until when it counts.
    clock = clock, moves = length > 0, pulse = pulse, lag = lag,
    least_ttl = least_ttl, least_ttl_until = parse_int(least_ttl_until) or 0,
    -- No waiter is next before this: a lost line comes back.
    rests_until = parse_int(string.match(more or '', '^ (%d+)$')) or 0,
    length = length, asking = {}, is_subscribed = {},
    waits = string.find(options, 'w', 1, true), is_deaf = string.find(options, 'd', 1, true),
    knows_listeners = string.find(options, 's', 1, true),
    knows_since = tonumber(string.match(options, 'u(%d+)') or 0),
  }
end

local function next_number(state)
  state.last, state.moves = math.max(state.last + 1, now_micros), true
  return state.last
end

-- Keeps the least TTL of the line until no waiter with so short a TTL can still be present. Then it is forgotten.
local function count_ttl(state)
  if state.length == 0 or state.ttl <= state.least_ttl or state.clock >= state.least_ttl_until then
    state.least_ttl, state.least_ttl_until = state.ttl, state.clock + state.ttl
  end
end

-- Saves the state, and further fields and values.
local function save(state, ...)
  local pulse, lag = state.pulse, state.lag
  if state.moves then pulse, lag = now, now - state.clock end
  local text = string.format('%016.0f %.0f %.0f %.0f %.0f %.0f', state.last, state.born, pulse, lag, state.least_ttl,
    state.least_ttl_until)
  if state.clock < state.rests_until then text = string.format('!%s %.0f', text, state.rests_until) end
  redis.call('HSET', state.record, 'state', text, ...)
  if state.is_new then
    redis.call('PEXPIRE', state.record, format_int(sequence_ttl(state.last)))
    state.is_new = false
  end
end

-- Client, number and request.
local function split_member(member)
  return string.match(member, '^(.*):([^:]*):([^:]*)$')
end

local function parse_place(member, text)
  -- A member that names no request can't be granted anything.
  if not text or not split_member(member) then return nil end
  local deadline, lease, ticket, letter, label = string.match(text, '^(%d+) (%d+) (%d+)([dp]?) (.*)$')
  deadline, lease, ticket = parse_int(deadline), parse_int(lease), parse_int(ticket)
  if not deadline or not lease or not ticket then return nil end
  return { deadline = deadline, lease = lease, ticket = ticket, letter = letter, label = label }
end

local function place_text(deadline, lease, ticket, letter, label)
  return string.format('%.0f %.0f %.0f%s %s', deadline, lease, ticket, letter, label)
end

local function place_of(state, member)
  return parse_place(member, redis.call('HMGET', state.record, member)[1])
end

-- Writes the place of a member that is heard now.
local function add_place(state, member, ticket, lease, label)
  count_ttl(state)
  local place = place_text(state.clock + state.ttl, lease, ticket, state.is_deaf and 'd' or '', label)
  redis.call('HSET', state.record, member, place)
  redis.call('ZADD', state.line, format_int(ticket), member)
  state.asking[member] = true
  state.head = nil
end

-- The member was heard: its place lives on at its ticket, or at the tail if that ticket is not from this line. Returns the ticket.
-- Without `label` the place keeps the one it has.
local function refresh_place(state, member, ticket, lease, label)
  label = label or (place_of(state, member) or {}).label or ''
  if ticket < 0 or ticket >= 2 * PARKED then ticket = next_number(state) end
  ticket = ticket % PARKED
  add_place(state, member, ticket, lease, label)
  return ticket
end

local function remove_place(state, member)
  local removed = redis.call('ZREM', state.line, member)
  state.length = state.length - removed
  -- A rest ends with the last place: nobody else of the lost line has come back.
  if removed > 0 and state.length == 0 then state.rests_until = 0 end
  -- An entry that names no request has no place: its name may be that of another field.
  if split_member(member) then redis.call('HDEL', state.record, member) end
  state.head = nil -- it may have been this member
end

-- Removes a place that its lost line has left in the record: a late heartbeat would take it for a forgotten one. Otherwise writes
-- nothing.
local function remove_leftover(state, member)
  if place_of(state, member) then redis.call('HDEL', state.record, member) end
end

-- For a day, since keys expire by the server's clock, which may be set forward by hours; and for as long as a waiter may be silent.
-- The record not for less than its sequence needs. The line may be new although the record is not, and the reverse: evicted, or
-- deleted by hand.
local function keep_line(state)
  local keep = math.max(KEPT_FOR, 12 * state.ttl)
  local lasts = state.line_ttl >= keep - RAISED_EVERY and now - state.pulse <= now % RAISED_EVERY
  if state.length > 0 and (lasts or state.is_kept) then return end
  redis.call('PEXPIRE', state.line, format_int(keep))
  redis.call('PEXPIRE', state.record, format_int(math.max(keep, sequence_ttl(state.last))))
  state.is_kept = true
end

-- Whether a waiter without a place gets it back at its ticket. Not if the sequence can't have given out that ticket, which
-- would let newcomers stand ahead of it. (An emptied sequence begins at the clock, which is past every former ticket if it
-- is right.) Not if an operator has removed the place since.
local function may_restore(state, member, ticket)
  if not ticket or ticket <= 0 or ticket >= PARKED or ticket > math.max(state.last, now_micros) then return false end
  local kicked = redis.call('HMGET', state.record, 'kicked')[1] or ''
  local _, at = string.find(kicked, member .. ' ', 1, true)
  return not at or ticket > tonumber(string.match(kicked, '^%d+', at + 1) or 0)
end

-- Whether the server has forgotten the place of a waiter that stands in no line. While a record lives, a place leaves it only by a
-- removal: a grant, a withdrawal, a sweep, a kick. So a place was forgotten if it is still in the record (the line alone was
-- lost); if the record has not come as far as its ticket (it is an older one); or if its ticket is from before the record's first
-- number (the record was lost), and was not granted the lock since, as far as that is known. Called before a number is drawn.
local function was_forgotten(state, member, ticket)
  local place = place_of(state, member)
  return place and place.ticket == ticket or ticket > state.last or ticket < state.born and ticket > state.served
end

-- A ticket from before the record's first number is granted the lock.
local function serve(state, ticket)
  state.served = math.max(state.served, ticket)
  redis.call('HSET', state.record, 'served', format_int(state.served))
end

-- While a lost line comes back, and in a grace, no waiter is next.
local function is_resting(state)
  return grace_left or state.clock < state.rests_until
end

-- Restores a place at its ticket. The number that is drawn is later than any grant of the former place, and so tells which
-- pushes are old. Where a place was forgotten, others were, which may have stood ahead. So the line rests for the place's TTL: a
-- waiter that is not heard by then is absent, as in any line.
local function restore_place(state, member, ticket, lease, label, is_forgotten)
  if is_forgotten and state.clock >= state.rests_until then state.rests_until = state.clock + state.ttl end
  next_number(state)
  add_place(state, member, ticket, lease, label)
  state.length = state.length + 1
  return ticket
end

-- The field `kicked` with one more line, the newest first: tickets of this member up to the last number are not restored.
local function kicked_with(state, member)
  local kicked = (redis.call('HMGET', state.record, 'kicked')[1] or '') .. '\n'
  local lines = member .. ' ' .. format_int(state.last) .. '\n' .. string.sub(kicked, 1, KICKS_KEPT)
  return string.match(lines, '^(.-)\n+[^\n]*$') -- whole ones
end

-- Whether the waiter was heard within its place's time, and a push would reach it. A server that is not a cluster knows its
-- subscribers; each client is looked up once, and an error counts as yes. A client that says that it is deaf is alive: its waiter
-- finds the grant by its own heartbeat within a third of the place's TTL, when two thirds are left of the lease. If it were passed
-- over as absent, it would never get a turn beside others.
local function is_present(state, member, place)
  if state.asking[member] then return true end
  if place.deadline <= state.clock then return false end
  if place.letter == 'd' or not state.knows_listeners then return true end
  local client = split_member(member)
  if state.is_subscribed[client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', CLIENT_PREFIX .. client)
    state.is_subscribed[client] = answer.err ~= nil or tonumber(answer[2]) ~= 0
  end
  return state.is_subscribed[client] or place.ticket < state.knows_since
end

-- Walks along the line, and lists the absent waiters in `state.absent`. Writes nothing. Of each waiter `judge(member, place)`
-- says `stop`, `next`, `last` if no unit is left behind it, or nothing if it is absent. Returns the waiter at which it stopped,
-- with its place. As a rule the head is present; if not, larger and larger parts of the line are read.
--
-- `state.more_to_scan`: there are more than one script may examine. Once these are parked, the next script continues
-- behind them. It has to follow at once, since no other client looks before the next heartbeat: a waiter is told to look
-- again in 0 ms, and a releaser hands on once more (`disciplines/line.rs`).
local function walk(state, judge)
  state.absent, state.more_to_scan = {}, nil
  local rank, step = 0, 1
  while rank < SCAN_LIMIT do
    local members = rank == 0 and state.head or redis.call('ZRANGE', state.line, rank, rank + step - 1)
    if #members == 0 then return nil end
    local texts = redis.call('HMGET', state.record, unpack(members))
    for index, member in ipairs(members) do
      local place = parse_place(member, texts[index])
      if place and place.letter == 'p' then return nil end
      local verdict = place and judge(member, place)
      if verdict == 'stop' then return member, place end
      if verdict == 'last' then return nil end
      if not verdict then state.absent[#state.absent + 1] = { member = member, place = place } end
    end
    if #members < step then return nil end
    rank = rank + step
    step = math.min(8 * step, SCAN_LIMIT - rank)
  end
  state.more_to_scan = true
end

-- Parks the absent waiters, and removes entries without a place.
local function park_absent(state)
  for _, absent in ipairs(state.absent) do
    local member, place = absent.member, absent.place
    if place then
      redis.call('ZADD', state.line, format_int(place.ticket + PARKED), member)
      redis.call('HSET', state.record, member, place_text(place.deadline, place.lease, place.ticket, 'p', place.label))
    else
      remove_place(state, member)
    end
  end
end

-- Removes places that were silent for a minute more, a few a call.
local function sweep(state)
  if state.length == 0 then return end
  for _, member in ipairs(redis.call('ZRANGE', state.line, PARKED, '+inf', 'BYSCORE', 'LIMIT', 0, 3)) do
    local place = place_of(state, member)
    if not place or place.deadline + SWEEP_AFTER < state.clock then remove_place(state, member) end
  end
end

-- Tells a waiter that it has the lock by this token; without one, to look. Those that ask get a reply.
local function tell(state, member, token)
  if state.asking[member] then return end
  local client, number = split_member(member)
  local message = 'look ' .. number .. ' ' .. state.lock
  if token then message = 'granted ' .. member .. ' ' .. format_int(token) .. ' ' .. state.lock end
  redis.pcall('PUBLISH', CLIENT_PREFIX .. client, message)
end
