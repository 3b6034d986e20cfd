-- The holds of a lock, and who gets its units next. The lock has a capacity, and each hold takes some units of it.
--
-- A hold that takes all units stands alone, so it is one field of the lock's hash, and the key's time to live is its lease:
-- `mode` = `<capacity> <member> <token> <hold count> <label>`. A fair lock is the case of one unit.
--
-- Holds that take a part stand side by side: `mode` = `of <capacity> <used>`, and a field for each: its member, with
-- `<takes> <token> <hold count> <label>`. The sorted set `ends` has the end of each, in milliseconds of the server's clock. A hold
-- whose end has come is over, whether it has been dropped or not. Both keys end a second after the last hold, or at most a minute
-- later. (`@` and a grace follow the count of a hold that was heard in it, see line/claim.)
--
-- Neither turns into the other: while all units are taken nobody comes beside, and who takes all comes only when all are free.
-- So nobody but its holder and who granted it ever writes the end of a hold. The field is called `mode` because Redisson's
-- read-write lock walks into a hash that has none. A hash without it is a lock of the disciplines Redisson or plain, with one unit.
--
-- The capacity of a lock is that of its holds; without any, that of its first present waiter; an idle name has none.

-- @include lib/clock: now, format_int, parse_int, sequence_ttl
-- @include lib/kind: mismatch
-- @include lib/owner: read_holder, foreign
-- @include lib/hold: renew
-- @include lib/line: NOBODY, open_line, next_number, save, remove_place, keep_line, serve, is_resting,
--   is_present, walk, park_absent, tell

-- How many holds that are over one script drops at most. Until all are dropped too many units count as used, never too few.
local MOST_OVER = 128
-- How many waiters one script grants the lock at most: a millisecond of the server's time.
local MOST_GRANTS = 64
-- A waiter for a lock of several units looks at the end of a hold no more often (ms).
local LOOK_EVERY = 50
-- Nor does the first in line look less often while another discipline's hold has the lock: its release tells our waiters nothing (ms).
local LOOK_BESIDE_EVERY = 500
local KEEP_FOR = 1000
-- Greater numbers were written by another program, and are not exact.
local LAST_END = 4503599627370496

-- Reads what a script needs to know of holds and line, and every key that may be of another type. Writes nothing. Without `ends`
-- (the caller asks for a fair lock) it knows of parts that they are there.
local function open_lock(lock, line, record, ends, ttl, options)
  local mode = redis.call('HMGET', lock, 'mode')[1] or ''
  local state = open_line(lock, line, record, ttl, options)
  local of, holder, token, count, label = string.match(mode, '^(%d+) ([^ ]+) (%d+) (%d+) (.*)$')
  local capacity, used = string.match(mode, '^of (%d+) (%d+)$')
  capacity, used = parse_int(capacity), parse_int(used)
  if not capacity or not used then capacity = nil end
  local n_ends = ends and redis.call('ZCARD', ends) or 0
  state.ends, state.grants, state.pushes, state.fields, state.new_ends = ends, {}, {}, {}, {}
  state.over, state.is_over, state.count, state.used = {}, {}, 0, 0
  -- One of the keys was evicted or deleted. The other alone can't tell who holds what: it goes, too, or its units would be lost.
  -- Beside a hold of all units only the ends go. (A client of a fair lock does not name `ends`, and does not look.)
  state.is_torn = ends and (capacity ~= nil) ~= (n_ends > 0)
  if parse_int(token) and parse_int(of) then
    state.capacity, state.used, state.count = parse_int(of), parse_int(of), 1
    state.whole = { member = holder, takes = state.capacity, token = parse_int(token), count = count, label = label }
  elseif capacity and not state.is_torn then
    state.capacity, state.used, state.count = capacity, used, n_ends
    state.over = ends and redis.call('ZRANGE', ends, '-inf', format_int(now), 'BYSCORE', 'LIMIT', 0, MOST_OVER) or {}
    for _, member in ipairs(state.over) do state.is_over[member] = true end
  elseif not capacity and redis.call('EXISTS', lock) == 1 then
    state.is_foreign, state.capacity, state.used, state.count = true, 1, 1, 1
  end
  -- The rest of the key's time, where that is the lease.
  state.left = state.count == 1 and redis.call('PTTL', lock) or -1
  state.more_over = #state.over == MOST_OVER
  return state
end

-- The member's hold, unless it is over: then it is dropped with the others, whatever their number.
local function hold_of(state, member)
  local whole = state.whole
  if whole or state.count == 0 or not state.ends then return whole and whole.member == member and whole or nil end
  local score = redis.call('ZSCORE', state.ends, member)
  if not score then return nil end
  local ends = math.min(tonumber(score), LAST_END)
  if ends <= now then
    if not state.is_over[member] then state.over[#state.over + 1] = member end
    state.is_over[member] = true
    return nil
  end
  local field = redis.call('HMGET', state.lock, member)[1] or ''
  local takes, token = string.match(field, '^(%d+) (%d+) %d+@?%d* ')
  return parse_int(token) and { member = member, takes = takes, token = parse_int(token), ends = ends }
end

-- How long the first hold lasts, or the last (ms). Nil if there is none, and for one without an end.
local function left_of(state, which)
  if state.count == 0 then return nil end
  if state.whole or state.is_foreign or not state.ends then return state.left >= 0 and state.left or nil end
  local found = which == 'first' and redis.call('ZRANGE', state.ends, 0, 0, 'WITHSCORES')
    or redis.call('ZRANGE', state.ends, 0, 0, 'REV', 'WITHSCORES')
  return found[2] and math.min(tonumber(found[2]), LAST_END) - now
end

-- The rest of a hold's lease, for its holder. It is not raised: a late repeat must neither shorten nor prolong it. Only one that
-- was made endless by hand (PERSIST) gets an end again, and one that is only kept, since the holder itself asks.
local function lease_left(state, hold, lease)
  local left = (hold.ends and hold.ends - now or state.left) - kept
  if left >= 0 then return left end
  local named = string.format('%.0f %s %.0f ', state.capacity, hold.member, hold.token)
  renew(state.lock, state.ends, named, '', lease + kept)
  return lease
end

-- The error for a name that is no lock, or one that is held with another capacity. Holds that are over do not count. The record of
-- the last grant tells a holder with another name than ours.
local function refusal(state, capacity, last_grant)
  local holder = state.is_foreign and read_holder(state.lock, last_grant or {})
  if holder and holder.is_foreign then return foreign() end
  if not state.capacity or state.capacity == capacity then return nil end
  if state.ends and not state.whole and not state.is_foreign and left_of(state, 'last') <= 0 then return nil end
  return mismatch(state.capacity)
end

-- Stands before the first write of a script that writes more than once. Redis undoes nothing if a command in the middle is
-- refused. So each command that may follow is used here first, without effect, and a missing right ends the script before
-- anything is written. HSET and DEL can't be used without effect: so an HSET that changes at most the line clock is the
-- next write, then comes DEL (which PEXPIRE stands for), then the rest.
--
-- A full server refuses the first write of a script, or none. That of a newcomer is ZADD, which it refuses. Holders and waiters
-- continue, also one whose place is restored: their first write is PEXPIRE, which it never refuses.
local function begin(state, is_newcomer, ...)
  if is_newcomer then redis.call('ZADD', state.line, 'XX', 0, NOBODY) end
  state.is_new = redis.call('PEXPIRE', state.record, format_int(sequence_ttl(state.last))) == 0
  redis.call('ZADD', state.line, 'XX', 0, NOBODY)
  for _, key in ipairs({ state.line, state.ends }) do redis.call('ZREM', key, NOBODY) end
  for _, key in ipairs({ state.record, state.lock }) do redis.call('HDEL', key, NOBODY) end
  if state.ends then redis.call('ZADD', state.ends, 'XX', 0, NOBODY) end
  state.head = redis.call('ZRANGE', state.line, 0, 0)
  state.line_ttl = redis.call('PTTL', state.line)
  redis.call('ZRANK', state.line, NOBODY)
  save(state, ...)
  if state.length > 0 then keep_line(state) end
  if state.is_torn then
    redis.call('PEXPIRE', state.ends, 0)
    if not state.whole and not state.is_foreign then redis.call('PEXPIRE', state.lock, 0) end
  end
end

-- Drops these holds: all there are, or parts. Units of holds that are over are free only once these have been dropped.
local function drop(state, members)
  if #members == 0 then return end
  state.wakes_plain = state.whole or state.is_foreign
  state.is_changed, state.count = true, state.count - #members
  if state.count <= 0 then
    -- PEXPIRE has been tried, and DEL can't be.
    redis.call('PEXPIRE', state.lock, 0)
    if state.ends then redis.call('PEXPIRE', state.ends, 0) end
    state.used, state.count, state.capacity, state.whole, state.is_foreign = 0, 0, nil, nil, nil
    return
  end
  for _, member in ipairs(members) do
    local field = redis.call('HMGET', state.lock, member)[1] or ''
    state.used = math.max(0, state.used - (parse_int(string.match(field, '^(%d+) ')) or 0))
    redis.call('HDEL', state.lock, member)
    redis.call('ZREM', state.ends, member)
  end
end

-- Grants the member its units, by a token that it had before if it claims them; `settle` writes them.
local function grant(state, member, takes, capacity, lease, label, claimed)
  local token = claimed or next_number(state)
  state.capacity, state.used, state.count = capacity, state.used + takes, state.count + 1
  if takes == capacity then
    state.mode = string.format('%.0f %s %.0f 1 %s', capacity, member, token, label)
    state.whole = { member = member, token = token, takes = takes, lease = lease }
    state.left = lease + kept
  else
    state.fields[#state.fields + 1] = member
    state.fields[#state.fields + 1] = string.format('%.0f %.0f 1 %s', takes, token, label)
    state.new_ends[#state.new_ends + 1] = format_int(now + lease + kept)
    state.new_ends[#state.new_ends + 1] = member
  end
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

-- The one rule of who is next: grants the lock to the waiters at the head, in order, as far as their units are free. The first
-- that does not fit stops it (`state.blocked`). After 64 grants the next in line is told to look (`state.next`), and goes on.
-- Nothing happens while all units are taken, and while the line rests.
local function hand_on(state)
  state.blocked, state.next = nil, nil
  if grace_left or state.capacity and state.used >= state.capacity then return end
  if state.length == 0 or is_resting(state) then return end
  local winners = state.pushes
  state.blocked = walk(state, function(member, place)
    local takes, capacity, label = wish_of(place)
    -- One with another capacity is no waiter of this lock: it is parked, and told when it asks.
    if not takes or state.capacity and state.capacity ~= capacity then return nil end
    -- A client of a fair lock does not name `ends`: the lock stays free for this waiter's own next ask.
    if not state.ends and capacity > 1 then
      if not is_present(state, member, place) then return nil end
      state.other = capacity
      return 'stop'
    end
    -- All others may wait for a waiter that does not fit. So it counts without a subscription, too, until it has been silent for
    -- half a place's time: a connection that breaks for a moment must not cost its turn.
    local fits = state.used + takes <= capacity
    local blocks = not fits and place.deadline - state.clock > state.least_ttl / 2
    if not blocks and not is_present(state, member, place) then return nil end
    if not fits then return 'stop' end
    state.next = #winners == MOST_GRANTS and member
    if state.next then return 'stop' end
    grant(state, member, takes, capacity, math.max(1, math.min(place.deadline - state.clock, place.lease)), label)
    if place.ticket < state.born then serve(state, place.ticket) end
    winners[#winners + 1] = member
    return state.used < capacity and 'next' or 'last'
  end)
  park_absent(state)
  for _, member in ipairs(winners) do remove_place(state, member) end
  state.head = nil
end

-- Writes the holds as they are now, and the sequence.
local function settle(state)
  if state.is_changed and state.count > 0 then
    local mode = state.mode or string.format('of %.0f %.0f', state.capacity, state.used)
    redis.call('HSET', state.lock, 'mode', mode, unpack(state.fields))
    if #state.new_ends > 0 then redis.call('ZADD', state.ends, unpack(state.new_ends)) end
    local keep = state.mode and state.left or math.max(1, left_of(state, 'last') or 1) + KEEP_FOR
    redis.call('PEXPIRE', state.lock, format_int(keep))
    if not state.mode then redis.call('PEXPIRE', state.ends, format_int(keep)) end
  end
  save(state)
end

-- Comes after every write: tells each new holder but the caller, and the next in line if it has to go on. If no waiter in line gets
-- the free lock, waiters for a plain lock of this name may, Redisson's included.
local function push(state)
  for _, member in ipairs(state.pushes) do tell(state, member, state.grants[member].token) end
  if state.next then tell(state, state.next) end
  if state.wakes_plain and not state.capacity then
    local braced = string.find(state.lock, '{', 1, true) and state.lock or '{' .. state.lock .. '}'
    redis.pcall('PUBLISH', 'redisson_lock__channel:' .. braced, '0')
  end
end

-- For a reply: 1 if units stay free only because one script may not examine the whole line, or drop all holds that are over.
local function more_to_do(state)
  return (state.more_to_scan or state.more_over) and 1 or 0
end

-- When one that does not wait may try again.
local function busy_for(state)
  if not state.capacity then return grace_left or 0 end
  return math.max(-1, left_of(state, 'first') or -1)
end

-- When a waiter looks without a push: when the first hold ends, if it is first in line, or the first of a client whose next
-- heartbeat would be later than that. For all waiters ahead may have died with a holder; and a live hold may be released
-- before, so any end may be the one that counts. While the line rests: after that.
local function recheck_in(state, rank)
  local is_free = not state.capacity or state.used < state.capacity
  if is_free and grace_left then return grace_left end
  local left = left_of(state, 'first')
  if is_free and is_resting(state) then
    return rank > 0 and left and 3 * left >= state.ttl and -1 or state.rests_until - state.clock
  end
  if not state.capacity or state.more_to_scan or state.more_over or state.next and rank == 0 then return 0 end
  if rank == 0 and state.is_foreign then return math.min(left and left + 1 or LOOK_BESIDE_EVERY, LOOK_BESIDE_EVERY) end
  if not left or rank > 0 and 3 * left >= state.ttl then return -1 end
  return state.capacity > 1 and math.max(LOOK_EVERY, left + 1) or left + 1
end
