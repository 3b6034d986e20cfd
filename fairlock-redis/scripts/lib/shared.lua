-- A lock with several holders, beside the line in lib/places: it has a capacity, and each hold takes some units of it.
--
-- The lock's hash has the field `mode`: `shared <capacity> <used>`, and a field for each hold: its member, with
-- `<takes> <token> <hold count> <label>`. The sorted set `holds` has the end of each, in milliseconds of the server's clock.
-- A hold whose end has come is over, whether it has been dropped or not: what finds that drops it. Both keys end a second after
-- the last hold. The field is called `mode` because Redisson's read-write lock walks into a hash that has none.
--
-- The label of a place begins with `<takes>/<capacity> `. The capacity of a lock is that of its holds; without any, that of its
-- first present waiter; an idle name has none.

-- How many holds that are over one script drops at most. Until all are dropped too many units count as used, never too few.
local MOST_OVER = 128
-- How many waiters one script grants the lock at most: a millisecond of the server's time.
local MOST_GRANTS = 64
-- A waiter looks at the holds' ends no more often (ms).
local LOOK_EVERY = 50
local KEEP_HOLDS_FOR = 1000
-- Greater numbers were written by another program, and are not exact.
local LAST_END = 4503599627370496

-- Reads what a script needs to know of holds and line, and every key that may be of another type. Writes nothing.
local function open_lock(lock, holds, line, places, sequence, ttl, options)
  local capacity, used = string.match(redis.call('HMGET', lock, 'mode')[1] or '', '^shared (%d+) (%d+)$')
  capacity, used = parse_int(capacity), parse_int(used)
  local exists = capacity or redis.call('EXISTS', lock) == 1
  local state = open_line(lock, line, places, sequence, ttl, options)
  local count = redis.call('ZCARD', holds)
  state.holds, state.grants, state.pushes, state.fields, state.ends = holds, {}, {}, {}, {}
  state.is_foreign = exists and not capacity
  -- One of the keys was evicted or deleted. The other alone can't tell who holds what: it goes, too, or its units would be lost.
  state.is_torn = not state.is_foreign and (capacity ~= nil) ~= (count > 0)
  local is_held = capacity and not state.is_torn
  state.capacity, state.used, state.count = is_held and capacity, is_held and used or 0, is_held and count or 0
  state.over = state.count > 0 and redis.call('ZRANGE', holds, '-inf', format_int(now), 'BYSCORE', 'LIMIT', 0, MOST_OVER) or {}
  state.more_over, state.is_over = #state.over == MOST_OVER, {}
  for _, member in ipairs(state.over) do state.is_over[member] = true end
  return state
end

-- The member's hold, unless it is over: then it is dropped with the others, whatever their number.
local function hold_of(state, member)
  if state.count == 0 then return nil end
  local score = redis.call('ZSCORE', state.holds, member)
  if not score then return nil end
  local ends = math.min(tonumber(score), LAST_END)
  if ends <= now then
    if not state.is_over[member] then state.over[#state.over + 1] = member end
    state.is_over[member] = true
    return nil
  end
  local field = redis.call('HMGET', state.lock, member)[1] or ''
  local takes, token, count, label = string.match(field, '^(%d+) (%d+) (%d+) (.*)$')
  return parse_int(token) and { takes = takes, token = parse_int(token), count = count, label = label, ends = ends }
end

-- When the first hold ends, or the last; nil if there is none.
local function end_of(state, which)
  if state.count == 0 then return nil end
  local found = which == 'first' and redis.call('ZRANGE', state.holds, 0, 0, 'WITHSCORES')
    or redis.call('ZRANGE', state.holds, 0, 0, 'REV', 'WITHSCORES')
  return math.min(tonumber(found[2]), LAST_END)
end

-- The error for a lock that is held as another kind, or with another capacity. Holds that are over do not count.
local function refusal(state, capacity)
  local wanted = kind_of(format_int(capacity))
  if state.is_foreign then return read_holder(state.lock, {}).is_foreign and foreign() or mismatch(nil, wanted) end
  if not state.capacity or state.capacity == capacity or (end_of(state, 'last') or 0) <= now then return nil end
  return mismatch('shared ' .. format_int(state.capacity), wanted)
end

-- PEXPIRE has been tried, and DEL can't be.
local function delete_holds(state)
  redis.call('PEXPIRE', state.lock, 0)
  redis.call('PEXPIRE', state.holds, 0)
end

-- Stands before the first write, see `probe_rights`. The HSET changes at most the line clock.
local function begin(state, caller, ...)
  probe_rights(state, caller)
  -- A newcomer to an empty line drops nothing that is not over, and its first write is an HSET.
  if caller == 'newcomer' and state.length == 0 and #state.over == 0 and not state.is_torn then return end
  if state.length == 0 and caller ~= 'restored' then
    redis.call('ZADD', state.holds, 'XX', 0, NOBODY)
    redis.call('ZREM', state.holds, NOBODY)
    redis.call('HDEL', state.lock, NOBODY)
  end
  save(state, ...)
  if state.is_torn then delete_holds(state) end
end

-- Drops these holds, which are in the set.
local function drop(state, members)
  if #members == 0 then return end
  state.is_changed, state.count = true, state.count - #members
  if state.count == 0 then
    delete_holds(state)
    state.used, state.capacity = 0, nil
    return
  end
  for from = 1, #members, 1000 do
    local to = math.min(from + 999, #members)
    for _, field in ipairs(redis.call('HMGET', state.lock, unpack(members, from, to))) do
      state.used = math.max(0, state.used - (parse_int(string.match(field or '', '^(%d+) ')) or 0))
    end
    redis.call('HDEL', state.lock, unpack(members, from, to))
    redis.call('ZREM', state.holds, unpack(members, from, to))
  end
end

-- Units are free only once the holds that are over have been dropped.
local function drop_over(state)
  drop(state, state.over)
end

-- Grants the member its units; `settle` writes them.
local function grant(state, member, takes, capacity, lease, label)
  local token = next_number(state)
  state.capacity, state.used, state.count = capacity, state.used + takes, state.count + 1
  state.fields[#state.fields + 1] = member
  state.fields[#state.fields + 1] = string.format('%.0f %.0f 1 %s', takes, token, label)
  state.ends[#state.ends + 1] = format_int(now + lease)
  state.ends[#state.ends + 1] = member
  state.grants[member] = { token = token, lease = lease }
  state.is_changed = true
  return state.grants[member]
end

-- The units that a place asks for, the capacity that it knows, and its label.
local function wish_of(place)
  local takes, capacity, label = string.match(place.label, '^(%d+)/(%d+) (.*)$')
  takes, capacity = parse_int(takes), parse_int(capacity)
  if not takes or not capacity or takes == 0 or takes > capacity then return nil end
  return takes, capacity, label
end

-- Whether a waiter that does not fit counts: only it can be the one that all others wait for. So it counts without a
-- subscription, too, until it has been silent for half a place's time: a subscription that blinks must not cost its turn.
local function is_block(state, member, place)
  return place.deadline - state.clock > state.least_ttl / 2 or is_present(state, member, place)
end

-- Grants the lock to the waiters at the head, in order, as far as their units are free. The first that does not fit stops it
-- (`state.blocked`). After 64 grants the next in line is told to look (`state.next`), and goes on.
local function hand_on(state)
  state.blocked, state.next = nil, nil
  if state.length == 0 or state.is_foreign or is_resting(state) then return end
  local winners = {}
  state.blocked = walk(state, function(member, place)
    local takes, capacity, label = wish_of(place)
    -- One with another capacity is no waiter of this lock: it is parked, and told when it asks.
    if not takes or state.capacity and state.capacity ~= capacity then return nil end
    local fits = state.used + takes <= capacity
    local is_there = fits and is_present(state, member, place) or not fits and is_block(state, member, place)
    if not is_there then return nil end
    if not fits then return 'stop' end
    if #winners == MOST_GRANTS then
      state.next = member
      return 'stop'
    end
    grant(state, member, takes, capacity, math.max(1, math.min(place.deadline - state.clock, place.lease)), label)
    state.served = math.max(state.served, place.ticket)
    winners[#winners + 1] = member
    return 'next'
  end)
  park_absent(state)
  if #winners > 0 then
    state.length = state.length - redis.call('ZREM', state.line, unpack(winners))
    redis.call('HDEL', state.places, unpack(winners))
  end
  for _, member in ipairs(winners) do
    if not state.asking[member] then state.pushes[#state.pushes + 1] = member end
  end
  state.head = nil
end

-- Whether a newcomer gets its units: no waiter is ahead of it, and they are free.
local function may_enter(state, takes, capacity)
  if state.length > 0 and (state.blocked or state.more_to_scan or is_resting(state)) then return false end
  return (not state.capacity or state.capacity == capacity) and state.used + takes <= capacity
end

-- Writes the holds as they are now, and the sequence.
local function settle(state)
  if state.is_changed and state.count > 0 then
    redis.call('HSET', state.lock, 'mode', string.format('shared %.0f %.0f', state.capacity, state.used), unpack(state.fields))
  end
  if #state.ends > 0 then redis.call('ZADD', state.holds, unpack(state.ends)) end
  if (state.is_changed or #state.ends > 0) and state.count > 0 then
    local last = state.count == 1 and tonumber(state.ends[1]) or end_of(state, 'last')
    local keep = format_int(math.max(1, last - now) + KEEP_HOLDS_FOR)
    redis.call('PEXPIRE', state.lock, keep)
    redis.call('PEXPIRE', state.holds, keep)
  end
  save(state)
end

-- Comes after every write: tells each new holder but the caller, and the next in line if it has to go on.
local function push(state)
  for _, member in ipairs(state.pushes) do tell(state, member, state.grants[member].token) end
  if state.next and not state.asking[state.next] then tell(state, state.next) end
end

-- For a reply: 1 if units stay free only because one script may not examine the whole line, or drop all holds that are over.
local function more_to_do(state)
  return (state.more_to_scan or state.more_over) and 1 or 0
end

-- When a waiter looks without a push: when the first hold ends, if it is first in line, or the first of a client whose next
-- heartbeat would be later than that. For all waiters ahead may have died with a holder; and a live hold may be released
-- before, so any end may be the one that counts. While the line rests: after that.
local function recheck_in(state, rank)
  if is_resting(state) then return state.rests_until - state.clock end
  local ends = end_of(state, 'first')
  if not ends or ends <= now or state.more_to_scan or state.next and rank == 0 then return 0 end
  local left = math.max(LOOK_EVERY, ends - now + 1)
  return rank > 0 and 3 * left >= state.ttl and -1 or left
end
