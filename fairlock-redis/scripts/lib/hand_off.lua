-- The line of the hand-off: a sorted set of members by ticket, and a hash of their places.
--
-- A member is one request: owner, a colon, the request in hex. Its place is `<deadline> <lease> <since> <label>`, with a
-- `d` behind `<since>` while its client says that it is deaf. The
-- deadline is on the line clock, which follows the server's, but advances by at most half of the least place's life
-- between two scripts: a server that was stopped, or a line nobody touched, does not make every live waiter an overdue
-- one. Who is absent (overdue, or nobody hears for him) is parked behind all others and keeps his ticket: he is back as
-- soon as he speaks. Tickets and tokens come from one sequence, so both grow, also when the keys are gone. Its last number is the
-- greater of the fields `token` (of the latest grant, whatever the discipline) and `ticket`.
--
-- A waiter knows its ticket and says it whenever it speaks. So a place that is gone is put back where it was: that of a
-- waiter that was granted the lock while it stood still, and whose grant is over; one that was swept; a whole line that was
-- evicted, deleted, or forgotten by a fail-over. The field `served` is the greatest ticket that was granted the lock;
-- `kicked` lists whose places were taken away by an operator.

local PARKED = 4503599627370496
local SWEEP_AFTER = 60000
local MOST_LOOKS = 256
-- Long enough for a server's clock to be stepped by hours: the keys end by that clock, and places do not.
local KEEP_LINE_FOR = 86400000
local KICKS_KEPT = 100
-- After so many grants Redisson's line is looked at, and a free lock is left to it for so long.
local TURNS = 16
local ASIDE_FOR = 1000
-- How often the first of our line looks meanwhile, and for so long after that while one of theirs has it.
local GLANCE = 20
local GLANCES_FOR = 60000
-- No member's name.
local NOBODY = 'nobody'

-- What one script knows of the line. Reads everything that can be of another type; writes nothing.
local function open_line(lock, line, places, sequence, ttl)
  local known = redis.call('HMGET', sequence, 'token', 'ticket', 'pulse', 'clock', 'ttl', 'ttl_until', 'served',
    'turns', 'aside', 'aside_for', 'rests_until')
  local n_places = redis.call('HLEN', places)
  local least = exact(known[5]) or 5000
  local passed = math.max(0, now - (exact(known[3]) or now))
  return {
    lock = lock, line = line, places = places, sequence = sequence, ttl = tonumber(ttl) or least,
    least = least, least_until = exact(known[6]) or 0,
    last = math.max(exact(known[1]) or 0, exact(known[2]) or 0), served = exact(known[7]) or 0,
    turns = exact(known[8]) or 0, aside = exact(known[9]) or 0, aside_for = known[10],
    rests_until = exact(known[11]) or 0,
    clock = (exact(known[4]) or now) + math.min(passed, math.floor(least / 2)),
    length = redis.call('ZCARD', line), n_places = n_places, speaking = {},
  }
end

local function next_number(at)
  at.last = math.max(at.last + 1, now_micros)
  return at.last
end

-- Stands before the first write of a script that writes more than one thing. Redis takes nothing back when a command in
-- the middle is refused: so every command that may come later is used here once (or has been before), without changing
-- anything, and a right that is missing is found out while nothing has been written. HSET and DEL have no such use: an
-- HSET that changes nothing, or nothing but the line clock, is the next write; then DEL; then the rest.
--
-- A full server refuses the first write of a script, or none. For who is new (`tail`: he can only queue; `newcomer`)
-- ZADD comes first, so it refuses; whoever has a hold or a place goes on, since PEXPIRE is never refused; `back`: so does
-- who had a place and gets it back. `holder`: nobody's rank will be asked for.
local function begin(at, who)
  local is_new = who == 'tail' or who == 'newcomer'
  if is_new then redis.call('ZADD', at.line, 'XX', 0, NOBODY) end
  at.is_new = redis.call('PEXPIRE', at.sequence, whole(sequence_lasts(at.last))) == 0
  if at.length == 0 and who ~= 'back' then return end
  if not is_new then redis.call('ZADD', at.line, 'XX', 0, NOBODY) end
  if who ~= 'tail' then
    redis.call('ZREM', at.line, NOBODY)
    redis.call('HDEL', at.places, NOBODY)
    at.head = redis.call('ZRANGE', at.line, 0, 0, 'WITHSCORES')
  end
  if who == 'holder' then return end
  at.line_lasts = redis.call('PTTL', at.line)
  redis.call('ZRANK', at.line, NOBODY)
end

-- A place with the asker's time to live is spoken for. The least of the line is kept until nobody can have spoken with so
-- short a time who is still present: so it is one's who stands there, and no one's who has left.
local function count_ttl(at)
  if at.length == 0 or at.ttl <= at.least or at.clock >= at.least_until then
    at.least, at.least_until = at.ttl, at.clock + at.ttl
  end
end

-- Remembers the line clock, and more: fields and values.
local function remember(at, ...)
  redis.call('HSET', at.sequence, 'pulse', whole(now), 'clock', whole(at.clock),
    'ttl', whole(at.least), 'ttl_until', whole(at.least_until), ...)
  if at.is_new then
    redis.call('PEXPIRE', at.sequence, whole(sequence_lasts(at.last)))
    at.is_new = false
  end
end

local function parts_of(member)
  return string.match(member, '^(.*):([^:]*):([^:]*)$')
end

local function read_place(member, text)
  -- Whoever is no request of ours can't be granted anything.
  if not text or not parts_of(member) then return nil end
  local deadline, lease, since, deaf, label = string.match(text, '^(%d+) (%d+) (%d+)(d?) (.*)$')
  deadline, lease = exact(deadline), exact(lease)
  if not deadline or not lease or not exact(since) then return nil end
  return { deadline = deadline, lease = lease, since = since, label = label, is_deaf = deaf == 'd' }
end

local function place_of(at, member)
  return read_place(member, redis.call('HMGET', at.places, member)[1])
end

-- The owner has been heard: his place lives on, and is where its ticket says; if that is none of ours, at the tail.
-- Returns the ticket.
local function speak(at, member, ticket, lease, since, label)
  count_ttl(at)
  redis.call('HSET', at.places, member,
    whole(at.clock + at.ttl) .. ' ' .. lease .. ' ' .. since .. (at.is_deaf and 'd ' or ' ') .. label)
  if ticket < 0 or ticket >= 2 * PARKED then
    ticket = next_number(at)
    redis.call('ZADD', at.line, whole(ticket), member)
  elseif ticket >= PARKED then
    redis.call('ZADD', at.line, whole(ticket - PARKED), member)
    ticket = ticket - PARKED
  end
  at.speaking[member] = true
  at.head = nil
  return ticket
end

local function leave(at, member)
  at.length = at.length - redis.call('ZREM', at.line, member)
  redis.call('HDEL', at.places, member)
end

-- One of the keys may be new although the other is not: evicted, or deleted by somebody.
local function keep_line(at)
  local keep = math.max(KEEP_LINE_FOR, 12 * at.ttl)
  if at.length == 0 or at.n_places == 0 or at.line_lasts < keep / 2 then
    redis.call('PEXPIRE', at.line, keep)
    redis.call('PEXPIRE', at.places, keep)
  end
end

-- One who has a place already.
local function speak_again(at, member, ticket, lease, label)
  local place = place_of(at, member)
  ticket = speak(at, member, ticket, lease, place and place.since or whole(now), label)
  keep_line(at)
  return ticket
end

-- Whether a waiter without a place is put back where its ticket says. Not if the sequence can't have given that out: who
-- came new would stand before it. (An emptied sequence begins at the clock, which is past every former ticket if it is
-- right.) And not if an operator has taken the place away since.
local function is_believed(at, member, ticket)
  if not ticket or ticket <= 0 or ticket >= PARKED or ticket > math.max(at.last, now_micros) then return false end
  local kicked = redis.call('HMGET', at.sequence, 'kicked')[1] or ''
  for entry in string.gmatch(kicked, '[^\n]+') do
    local whose, last = string.match(entry, '^(.*) (%d+)$')
    if whose == member and ticket <= tonumber(last) then return false end
  end
  return true
end

-- Whether a line that was lost comes back, so that nobody is next.
local function rests(at)
  return at.clock < at.rests_until
end

-- Puts it back. The number that is drawn is later than any grant of the place that is gone, and so tells which pushes are
-- old. A ticket that was never served shows that the line was lost: others may have stood before, and speak within a third
-- of their places' life. So the line rests for half of that life, and nobody is next.
local function put_back(at, member, ticket, lease, label)
  if ticket > at.served and not rests(at) then at.rests_until = at.clock + math.floor(at.ttl / 2) end
  next_number(at)
  speak(at, member, 0, lease, whole(now), label)
  redis.call('ZADD', at.line, whole(ticket), member)
  at.length = at.length + 1
  return ticket
end

-- After it, and all others of its script.
local function remember_back(at)
  remember(at, 'ticket', whole(at.last), 'rests_until', whole(at.rests_until))
end

-- The field `kicked` with one more: the tickets of this member up to now are not believed any more.
local function with_kick(at, member)
  local kicked, kept = redis.call('HMGET', at.sequence, 'kicked')[1] or '', {}
  for entry in string.gmatch(kicked, '[^\n]+') do kept[#kept + 1] = entry end
  kept[#kept + 1] = member .. ' ' .. whole(at.last)
  return table.concat(kept, '\n', math.max(1, #kept - KICKS_KEPT + 1))
end

-- Would the waiter learn of a grant? A server that is not a cluster knows who listens. Asked once a client; an error counts
-- as "he does". A client that knows that it can't listen, and says so, is alive: its waiter finds the grant by its own
-- heartbeat, a third of the place's time later at most, and two thirds of the place are left of the lease then. Were it
-- passed over as one who is gone, it would never get a turn while others wait.
local function is_heard(at, member, place)
  if at.speaking[member] or place.is_deaf or at.knows ~= '1' then return true end
  local client = parts_of(member)
  if not client then return false end
  at.heard = at.heard or {}
  if at.heard[client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', at.client_prefix .. client)
    at.heard[client] = answer.err ~= nil or tonumber(answer[2]) ~= 0
  end
  return at.heard[client]
end

-- Who is the first in line that is present? Writes nothing: `at.absent` are those ahead of him. As a rule that is the
-- first of all; where he is not, more and more are read at once.
-- `at.unsure`: there are more than one script may look at. Once they are parked the next script goes on behind them, and
-- it has to follow at once, since nobody else looks before the next heartbeat: a waiter is told to look again in 0 ms,
-- and who gave the lock up repeats (`hand_off.rs`).
local function first_present(at)
  at.absent, at.unsure = {}, nil
  local rank, step = 0, 1
  while rank < MOST_LOOKS do
    local entries = rank == 0 and at.head or redis.call('ZRANGE', at.line, rank, rank + step - 1, 'WITHSCORES')
    local members = {}
    for index = 1, #entries, 2 do members[#members + 1] = entries[index] end
    if #members == 0 then return nil end
    local texts = redis.call('HMGET', at.places, unpack(members))
    for index, member in ipairs(members) do
      local ticket = tonumber(entries[2 * index])
      if ticket >= PARKED then return nil end
      local place = read_place(member, texts[index])
      local present = place and (at.speaking[member] or (place.deadline > at.clock and is_heard(at, member, place)))
      if present then return member, place, ticket end
      -- A ticket that is none of ours might be ahead of all others for ever: it is removed, not parked.
      at.absent[#at.absent + 1] = { member = member, ticket = place and ticket >= 0 and ticket }
    end
    if #members < step then return nil end
    rank = rank + step
    step = math.min(8 * step, MOST_LOOKS - rank)
  end
  at.unsure = true
end

-- The absent are parked, entries without a place removed.
local function clear_absent(at)
  local parked, gone = {}, {}
  for _, absent in ipairs(at.absent) do
    if absent.ticket then
      parked[#parked + 1] = whole(absent.ticket + PARKED)
      parked[#parked + 1] = absent.member
    else
      gone[#gone + 1] = absent.member
    end
  end
  if #parked > 0 then redis.call('ZADD', at.line, unpack(parked)) end
  if #gone > 0 then
    at.length = at.length - redis.call('ZREM', at.line, unpack(gone))
    redis.call('HDEL', at.places, unpack(gone))
  end
end

-- Makes the member the holder. The lock does not exist, or is this owner's; PEXPIRE has been tried (`begin`), so no
-- hash stays without an end.
local function grant_to(at, member, lease, label)
  local client, number, request = parts_of(member)
  local owner = client .. ':' .. number
  local token = next_number(at)
  redis.call('HSET', at.lock, owner, 1, 'fairlock', member .. ' ' .. whole(token))
  redis.call('PEXPIRE', at.lock, whole(lease))
  remember(at, 'token', whole(token), 'owner', owner, 'request', request, 'since', whole(now), 'label', label,
    'served', whole(at.served), 'turns', whole(at.turns + 1), 'aside_for', '')
  return token
end

local function is_free(lock)
  return redis.call('PTTL', lock) == -2
end

-- Redisson's fair lock has a line of its own for this lock, of which our hand-overs tell nothing. So after every 16th grant
-- of ours that line is looked at. If its first is alive and listens, the free lock is left to it until it has had its turn,
-- but for a second at most. The field `turns` counts our grants; `aside` says until when the lock is left, and `aside_for` to
-- whom.
--
-- Those keys are no KEYS: a user without the right to them does without this. It names no line then, or a look is refused.
-- Where Redis does not know who listens (a cluster), one who has died is waited for until its time in that line is over.
local function first_of_redisson(at)
  if at.other_line == '' then return nil end
  local first = redis.pcall('LINDEX', at.other_line, 0)
  if type(first) ~= 'string' then return nil end
  local ends = redis.pcall('ZSCORE', at.other_times, first)
  if type(ends) ~= 'string' or tonumber(ends) <= now then return nil end
  if at.knows == '1' then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', at.plain_channel .. ':' .. first)
    if answer.err == nil and tonumber(answer[2]) == 0 then return nil end
  end
  return first
end

-- Is the 16th grant over, or has our line come to its end soon after the other was seen? And somebody waits there? Only looks,
-- and only once a script.
local function owes_a_turn(at)
  if at.turns == 0 then return false end
  local ends = at.length == 0 and at.knows == '1' and now < at.aside + GLANCES_FOR
  if at.turns % TURNS ~= 0 and not ends then return false end
  if at.owed == nil then at.owed = first_of_redisson(at) or false end
  return at.owed ~= false
end

-- Is it left now? No longer when the one it is left to has gone from the head of its line: it has come. Nor after a grant of
-- ours, which forgets it: the same one may have come, gone and asked again meanwhile, and nobody would tell it of this time.
local function is_left(at)
  -- More than that is left only after the clock was set back.
  if not at.aside_for or at.aside_for == '' or now >= at.aside or at.aside > now + ASIDE_FOR then return false end
  if at.other_line == '' then return true end
  local first = redis.pcall('LINDEX', at.other_line, 0)
  return type(first) == 'table' or first == at.aside_for
end

-- The lock is free: is it left to Redisson's line? Writes HSET alone, which has been tried.
local function steps_aside(at)
  at.is_aside = is_left(at)
  if at.is_aside or not owes_a_turn(at) then return at.is_aside end
  at.is_aside, at.aside, at.aside_for = true, now + ASIDE_FOR, at.owed
  -- Counted like a grant, so the line is looked at again after 16 more.
  remember(at, 'aside', whole(at.aside), 'aside_for', at.aside_for, 'turns', whole(at.turns + 1))
  at.tell = at.aside_for
  -- Our first in line is told to look: it has to know when the time is over, and to watch the one who comes.
  local member = at.length > 0 and first_present(at)
  at.push = member and not at.speaking[member] and { member = member }
  return true
end

-- The lock is free: the first who is present gets it, and is told, unless he is the one who asks. Returns who got it.
-- When `at.unsure` the lock stays free, and the next script goes on; when `at.is_aside`, it is left to Redisson's line.
-- It stays free too while the line rests.
local function hand_on(at)
  if rests(at) or steps_aside(at) then return nil end
  local member, place, ticket = first_present(at)
  clear_absent(at)
  if not member then return nil end
  local lease = math.max(1, math.min(place.deadline - at.clock, place.lease))
  at.served = math.max(at.served, ticket)
  local token = grant_to(at, member, lease, place.label)
  leave(at, member)
  at.push = not at.speaking[member] and { member = member, token = token }
  return member, token, lease
end

-- Places whose owners have been silent for a minute more are removed, a few a call.
local function sweep(at)
  if at.length == 0 then return end
  for _, member in ipairs(redis.call('ZRANGE', at.line, PARKED, '+inf', 'BYSCORE', 'LIMIT', 0, 3)) do
    local place = place_of(at, member)
    if not place or place.deadline + SWEEP_AFTER < at.clock then
      leave(at, member)
    end
  end
end

-- Tells the new holder, after every write; or both lines that the lock is left to Redisson's.
local function push(at, name)
  if at.tell then redis.pcall('PUBLISH', at.plain_channel .. ':' .. at.tell, '0') end
  if not at.push then return end
  local client, number, request = parts_of(at.push.member)
  local message = 'look ' .. number .. ' ' .. name
  if at.push.token then
    message = 'granted ' .. number .. ' ' .. request .. ' ' .. whole(at.push.token) .. ' ' .. name
  end
  redis.pcall('PUBLISH', at.client_prefix .. client, message)
end

-- For a reply: 1 if the lock stays free only because one script may not look at the whole line.
local function goes_on(at)
  return at.unsure and not at.is_aside and 1 or 0
end

-- Nobody in line gets the free lock: those who wait for a plain lock of this name, Redisson's too, may.
local function tell_plain(at)
  if not at.is_aside then redis.pcall('PUBLISH', at.plain_channel, '0') end
end

-- When to look without being told: when the hold is over, if one is the first in line, or the first of a client whose
-- next heartbeat would be later than that. For all who stand before him may have died with the holder. While the line
-- rests: after that.
--
-- `at.beside`: one of Redisson's has it, and they tell each other of its end, but not us. So the only way in is to look just
-- when one has gone and the next has not come. The number of their turns until then is, on average, the time between two
-- looks by the gap between two of their turns, however long these last; by heartbeats alone we would wait for ever.
local function look_again(at, rank)
  local left = redis.call('PTTL', at.lock)
  if left == -2 then
    if rests(at) then return at.rests_until - at.clock end
    if not at.is_aside then return 0 end
    return rank == 0 and math.min(GLANCE, at.aside - now + 1) or -1
  end
  if rank == 0 and at.beside then return GLANCE end
  if left < 0 or rank > 0 and 3 * left >= at.ttl then return -1 end
  return left + 1
end

-- What is left of a hold's lease. One that somebody has made endless (PERSIST) gets an end again.
local function left_of(lock, lease)
  local left = redis.call('PTTL', lock)
  if left >= 0 then return left end
  redis.call('PEXPIRE', lock, lease)
  return tonumber(lease)
end

-- What the field `fairlock` says of the hold: member and token.
local function hold_of(field)
  if not field then return nil end
  return string.match(field, '^(.*) (%d+)$')
end

-- Is the lock held by another discipline's rules, beside Redisson's line? `holder`: who holds it by ours.
-- Returns what a reply says of that line: 1 if it is there, 2 if the user may not look.
local function look_beside(at, holder)
  at.beside = not holder and at.aside > 0 and now < at.aside + GLANCES_FOR
  if at.other_line == '' then return 0 end
  local left = redis.pcall('PTTL', at.other_line)
  if type(left) == 'table' then return 2 end
  at.beside = not holder and (at.beside or left ~= -2)
  return left ~= -2 and 1 or 0
end
