-- The one rule of who is next. The rule makes a plan, and `write` (lib/write) carries it out.
-- @include lib/format: read_place
-- @include lib/holds: is_alike
-- @include lib/queue: lease_of, is_present, is_resting
-- @include lib/plan: grant

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
