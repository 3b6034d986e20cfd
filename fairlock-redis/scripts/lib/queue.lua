-- Who waits. The queue is a sorted set of members by ticket. The record beside it has a field for each place, and two more:
--
--   last   the last token or ticket that was drawn. Both come from one sequence, so both grow, even if the keys are lost
--   queue  five numbers:
--     served   tickets up to this one have had their turn: they were granted the lock, or were absent then
--     pulse    the server's clock (ms) at the last script
--     clock    the queue's clock then, by which deadlines count
--     ttl      the least time to live of a place since the queue was empty (ms): the clock moves by at most half of the TTL in a script
--     rests    until this time of the queue's clock no waiter is next: a lost queue comes back. An empty queue does not rest
-- @include lib/clock: number, now
-- @include lib/numbers: int
-- @include format/queue: read_numbers
-- @include lib/queue_clock: clock_at

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
  local last = fields[1] or head and redis.call('ZRANGE', waiters, '-1', '-1', 'WITHSCORES')[2]
  rests = head and tonumber(rests) < LAST_TIME and tonumber(rests) or 0
  return { head = head, head_place = fields[4], own = fields[3] or nil, last = int(last) or 0,
    served = int(served) or 0, clock = clock_at(pulse, clock, head and ttl), ttl = int(ttl) or 5000, rests = rests,
    is_held_back = head and now - (pulse or now) > ttl / 2, known = {} }
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
