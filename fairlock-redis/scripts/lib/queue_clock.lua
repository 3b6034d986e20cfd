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
