-- Who waits. The queue is a sorted set of members by ticket. The record beside it has a field for each place, and two more:
--
--   last   the last token or ticket that was drawn. Both come from one sequence, so both grow, even if the keys are lost. And the note
--   queue  five numbers:
--     served   tickets up to this one have had their turn: they were granted the lock, or were absent then
--     pulse    the server's clock (ms) at the last script
--     clock    the queue's clock then, by which deadlines count
--     ttl      the least time to live of a place since the queue was empty (ms): the clock moves by at most half of the TTL in a script
--     rests    until this time of the queue's clock no waiter is next: a lost queue comes back. An empty queue does not rest
--
-- A lock that is to be granted once in a period has a note in the field `last`, see lib/format. From the first ask that
-- names a period on, each grant is noted, of whatever request. The note lives as long as the record: for twice the longest period at least,
-- from the last grant on, and from the last ask that was not declined.
--
-- No case applies to a lock with a note, nor to an ask with a condition.

-- @part
-- @include lib/clock: number, now
-- @include lib/format: int, read_numbers, read_last
-- @include lib/queue: clock_at

-- A clock never reaches this (ms): a greater number was written by another program.
local LAST_TIME = 1e15

-- No member has this name.
local NOBODY = 'nobody'

-- Reads the queue's head, the numbers, and the place of one member. Writes nothing. If the last number was lost alone, the last ticket is
-- the least that number can have been: a clock that was set back would put newcomers ahead of the queue.
local function read_queue(member)
  local head = redis.call('ZRANGE', waiters, '0', '0')[1]
  local fields = redis.call('HMGET', record, 'last', 'queue', member, head or NOBODY)
  local served, pulse, clock, ttl, rests = read_numbers(fields[2])
  local last, note = read_last(fields[1] or head and redis.call('ZRANGE', waiters, '-1', '-1', 'WITHSCORES')[2])
  rests = head and tonumber(rests) < LAST_TIME and tonumber(rests) or 0
  return { head = head, head_place = fields[4], own = fields[3] or nil, last = last or 0, note = note,
    served = int(served) or 0, clock = clock_at(pulse, clock, head and ttl), ttl = int(ttl) or 5000, rests = rests,
    held_back = head and now - (pulse or now) > ttl / 2 and now - pulse, known = {} }
end

local function draw(queue)
  queue.last = math.max(queue.last + 1, number)
  return queue.last
end

-- Whether no waiter is next: while a lost queue comes back, and in a grace.
local function is_resting(queue)
  return grace_left or queue.clock < queue.rests
end

-- Whether a waiter without a place gets it back at its ticket. Not if the sequence can't have given out that ticket: newcomers would
-- stand ahead of it. (An emptied sequence begins at the clock, which is past every former ticket unless it was set back.)
local function may_restore(queue, ticket)
  return ticket > 0 and ticket < 4503599627370496 and ticket <= math.max(queue.last, number)
end

-- @part
-- The queue's clock follows the server's, but while somebody waits it advances by at most half of `ttl` between two scripts: so
-- live waiters are not overdue after the server was stopped, or when no script touched the queue.
-- @include lib/clock: since, now

-- The queue's clock now. `ttl` is missing while nobody waits. A server's clock that was set back counts as standing still. Numbers of
-- another program do not count.
local function clock_at(pulse, clock, ttl)
  clock = tonumber(clock) or now
  if clock > 4e15 then return now end
  local passed = math.max(0, now - (pulse or now))
  return clock + (ttl and math.min(passed, math.floor(ttl / 2)) or passed)
end

-- A lease as a grant to a place gives it: the rest of the place's time, at most as long as was asked.
local function lease_of(place, clock)
  return math.max(1, math.min(place.deadline - clock, place.lease, 4e15))
end

-- How long queue and record are to live from now: a day, or longer if a waiter may be silent for longer. To save calls, a case
-- sets the two times only once in 2.8 hours (when one of the first six digits of the clock has changed), and to 2.8 hours more
-- than a day. Nil if they need not be set. Without `pulse` the queue is new.
local function keep_anew(waiters, pulse, ttl)
  if tonumber(ttl) <= 8033333 and string.sub(pulse or '', 1, 6) == string.sub(since, 1, 6) then return nil end
  return string.format('%d', math.max(96400000, 12 * math.min(ttl, 4e12), pulse and redis.call('PTTL', waiters) or 0))
end

-- @part
-- How the name of a client's channel begins.
local CLIENT_PREFIX = 'fairlock:'

-- Whether the waiter was heard within its place's time, and a push would reach it. A server that is not a cluster (`s`) knows its
-- subscribers; each client is looked up once (`known`). After a fault some have not subscribed again yet: `u<time>` says that a waiter
-- with a smaller ticket counts as subscribed. A client that is deaf says so: it lives, and finds a grant by its own heartbeat.
local function is_present(place, clock, known)
  if place.deadline <= clock then return false end
  if place.is_deaf or not string.find(options, 's', 1, true) then return true end
  if known[place.client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', CLIENT_PREFIX .. place.client)
    known[place.client] = answer.err ~= nil or tonumber(answer[2]) ~= 0
  end
  return known[place.client] or tonumber(place.ticket) < tonumber(string.match(options, 'u(%d+)') or 0)
end

-- @part
-- @include lib/clock: number

-- Notes a grant, or none (0), before the note is written. Returns how long the record has to live (ms): no shorter than it does.
local function note_grant(note, token)
  note.granted = math.max(note.granted, token)
  local from = note.is_asked and math.max(note.granted, number) or note.granted
  return math.max(redis.call('PTTL', record), note.keep + math.min(4e12, math.ceil((from - number) / 1000)))
end

-- @part
-- @include lib/clock: now, sequence_ttl
-- @include lib/format: last_text
-- @include lib/queue: note_grant

-- Notes an ask for a lock that was not granted since the last multiple of a period (`e`), or a time ago (`a`), both in microseconds.
-- Returns the note; and the reply, if the lock was granted since then. Such an ask prolongs a note only if its period is longer than those
-- before: the note outlasts the period anyway. (Here the clock has whole milliseconds: a time ago is a millisecond longer at most.)
local function note_ask(note, kind, period)
  note = note or { granted = 0, keep = -1 }
  local since, keep = 1000 * now - period, math.min(4e12, math.ceil(2 * period / 1000))
  if kind == 'e' then since = 1000 * now - 1000 * now % math.max(1, period) end
  local is_declined = note.granted > 0 and note.granted >= since
  note.is_asked = not is_declined or keep > note.keep
  note.keep = math.max(note.keep, keep)
  return note, is_declined and { 'declined', 'granted', note.granted } or nil
end

-- Writes the note after an ask that changes nothing else.
local function write_note(last, note)
  if not note or not note.is_asked then return end
  local lives = math.max(sequence_ttl(last), note_grant(note, 0))
  local is_known = redis.call('PEXPIRE', record, lives) == 1
  redis.call('HSET', record, 'last', last_text(last, note))
  if not is_known then redis.call('PEXPIRE', record, lives) end
end
