-- The one rule of who is next. The rule makes a plan, and `write` (lib/write) carries it out.

-- @part
-- @include lib/format: read_place
-- @include lib/holds: is_alike
-- @include lib/queue: lease_of, is_present, is_resting
-- @include lib/rule: grant

-- How many waiters one script grants the lock at most, how many places it settles (by a grant or a removal), and how many it reads.
local MOST_GRANTS, MOST_REMOVED, MOST_READ = 64, 256, 4096

-- What becomes of a waiter at its turn. `takes`: it gets its units. `stops`: it waits, and so do all behind. `passed`: its place
-- stays, and waiters behind may go first. `leaves`: its place is removed.
local function turn_of(holds, queue, capacity, place, is_heard)
  local of = tonumber(place.capacity)
  local fits = is_alike(of, capacity) and holds.used + place.units <= of
  -- A waiter that does not fit counts as present, even if its client is not subscribed, until half of the queue's least TTL is left of
  -- its time: else a connection that breaks for a moment would cost its turn, since smaller ones would go first.
  local blocks = not fits and place.deadline - queue.clock > queue.ttl / 2
  if holds.capacity and not is_alike(holds.capacity, of) then
    return 'leaves' -- Units of another kind of lock are held. The waiter hears of that when it asks.
  elseif place.is_impatient and not fits then
    return 'passed' -- Its request does not wait: `acquire` removes the place.
  elseif is_heard or blocks or is_present(place, queue.clock, queue.known) then
    return fits and 'takes' or 'stops'
  end
  -- A waiter that left comes back at its ticket. A waiter that may not know its ticket could not come back: its place stays
  -- until the queue's least TTL after its deadline, and others pass.
  return place.is_new and place.deadline + queue.ttl > queue.clock and 'passed' or 'leaves'
end

local function leave(queue, plan, member, place)
  plan.leaves[#plan.leaves + 1] = member
  if place then queue.served = math.max(queue.served, tonumber(place.ticket)) end
end

-- Grants the lock to the waiters at the head, in order, as long as their units are free. The first present waiter that does not fit
-- ends this (`plan.blocked`). Absent waiters leave. Nothing happens while all units are taken, while a lost queue comes back, and in a
-- grace. A newcomer comes after all waiters: `acquire` grants it the lock only if nothing is blocked and no place is left to scan.
--
-- `capacity` is what the script's caller believes. A place of another kind of lock never fits; if that place ends the search, `acquire`
-- refuses the caller (`plan.other`).
--
-- Of a semaphore each waiter fits by its own number of permits. The search ends when the units in use reach both the number of the last
-- grant and the caller's. A later waiter that names a greater number is served at its own heartbeat.
--
-- After 64 grants the script stops, and tells the next waiter to ask (`plan.next`): that waiter's script goes on. After 256 settled or
-- 4096 read places the reply says so (`plan.more_to_scan`), and its client goes on at once. The head is read already; then each step
-- reads eight times as many places as all steps before it.
local function hand_on(holds, queue, plan, capacity)
  local members, places, rank, passed = { queue.head }, { queue.head_place }, 0, {}
  plan.blocked = is_resting(queue)
  while members[1] and not plan.blocked and holds.used < math.max(holds.capacity or 0, capacity) do
    for at, member in ipairs(members) do
      local heard = plan.heard[member]
      local place = heard or read_place(member, places[at])
      -- A member without a readable place leaves. The place of a `gone` member is removed by the script itself.
      local turn = heard == 'gone' and heard or place and turn_of(holds, queue, capacity, place, heard) or 'leaves'
      if turn == 'takes' and #plan.grants == MOST_GRANTS then turn, plan.next = 'stops', member end
      if turn == 'stops' then
        plan.blocked, plan.other = true, not is_alike(tonumber(place.capacity), capacity) and tonumber(place.capacity)
        return
      elseif turn == 'passed' then
        passed[#passed + 1] = { member, place }
      elseif turn ~= 'gone' then
        if turn == 'takes' then grant(holds, queue, plan, member, place, lease_of(place, queue.clock)) end
        leave(queue, plan, member, place)
        if holds.used >= math.max(holds.capacity or 0, capacity) then return end
      end
    end
    rank = rank + #members
    plan.more_to_scan = rank - #passed >= MOST_REMOVED or rank >= MOST_READ
    if plan.more_to_scan then break end
    members = redis.call('ZRANGE', waiters, rank, rank + math.min(8 * rank, MOST_REMOVED - (rank - #passed)) - 1)
    places = members[1] and redis.call('HMGET', record, unpack(members))
  end
  -- If 4096 places were read, those that were passed leave, too: otherwise no script would ever come to the waiters behind.
  for _, it in ipairs(rank >= MOST_READ and passed or {}) do
    if not plan.heard[it[1]] then leave(queue, plan, it[1], it[2]) end
  end
end

-- @part
-- The steps of a plan: what is to become of holds and places. Nothing is written before `write`.
-- @include lib/format: read_hold, place_text
-- @include lib/clock: text
-- @include lib/queue: draw

-- `heard[member]`: the place of a waiter that asks in this script, and so counts as present; or `gone`, if the script removes the
-- member's place.
local function new_plan()
  return { grants = {}, drops = {}, leaves = {}, places = {}, joins = {}, heard = {} }
end

-- Ends these holds. The units of a hold that is over stay taken until this. (A foreign hold is of the lock's one unit.)
local function drop(holds, plan, members)
  if #members == 0 then return end
  for at, field in ipairs(redis.call('HMGET', lock, unpack(members))) do
    plan.drops[#plan.drops + 1] = members[at]
    holds.used = math.max(0, holds.used - (read_hold(field) or holds.is_foreign and 1 or 0))
  end
  if holds.used == 0 then holds.capacity, holds.is_foreign, plan.is_clear = nil, nil, true end
end

local function grant(holds, queue, plan, member, place, lease)
  local it = { member = member, units = place.units, token = draw(queue), lease = lease, label = place.label }
  holds.capacity, holds.used = tonumber(place.capacity), holds.used + place.units
  plan.grants[#plan.grants + 1], plan.grants[member] = it, it
end

-- Hears a waiter: its place lasts for another `ttl`. A waiter that names its ticket knows it. When the clock was held back, the queue's
-- least TTL becomes twice the silence of all waiters: otherwise one short wait would slow the clock for as long as anybody waits. (A live
-- waiter is heard every third of its TTL, so each live waiter's TTL is more than that. If all stood still, the waiter with the least TTL
-- is heard long before the clock can be held back again.) `asks` is the longest TTL of the waiters that ask in this script: `write` lets
-- queue and record outlive that TTL.
local function hear(queue, place, ttl, ticket)
  local least = not queue.head and ttl or queue.held_back and 2 * queue.held_back or queue.ttl
  queue.ttl = math.min(least, ttl)
  queue.held_back, queue.asks = nil, math.max(queue.asks or 0, ttl)
  place.deadline, place.is_deaf = queue.clock + ttl, string.find(options, 'd', 1, true)
  if ticket == tonumber(place.ticket) then place.is_new = nil end
end

-- Puts a newcomer at the tail, unless the newcomer names how many may be ahead at most, and more are: then returns how many.
local function join_behind(queue, plan, member, place, most)
  local ahead = most and redis.call('ZCARD', waiters) - #plan.leaves
  if ahead and ahead > tonumber(most) then return ahead end
  place.ticket, place.is_new = draw(queue), true
  plan.joins = { place.ticket, member }
end

-- Puts a place back at its ticket. Only an ask does this: a heartbeat may arrive after the end of its request. The number drawn
-- here is later than any grant of the former place, so a push of such a grant is recognised as old. If the ticket is greater than
-- `served`, it has not had its turn: the queue was lost, and other waiters may have stood ahead. The queue then rests for the
-- place's TTL, until these waiters are back. `served` becomes the number drawn, so their returns begin no second rest. Nothing is
-- handed on in this script: the waiter looks again at once.
local function restore(queue, plan, member, place, ttl, ticket)
  local begins = ticket > queue.served and queue.clock >= queue.rests
  draw(queue)
  if begins then queue.rests, queue.served = queue.clock + ttl, queue.last end
  place.ticket, plan.joins, plan.is_restored = ticket, { ticket, member }, true
end

-- Writes the place of a waiter that was heard, unless it was granted the lock.
local function keep_place(plan, member, place)
  if plan.grants[member] then return end
  local marks = (place.is_deaf and 'd' or '-') .. (place.is_new and 'n' or '-')
  local places = plan.places
  places[#places + 1] = member
  places[#places + 1] = place_text(text(place.units), text(place.capacity), text(place.ticket), text(place.deadline),
    text(place.lease), marks, place.label)
end
