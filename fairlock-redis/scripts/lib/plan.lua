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

-- Puts a newcomer at the tail.
local function join(queue, plan, member, place)
  place.ticket, place.is_new = draw(queue), true
  plan.joins = { place.ticket, member }
end

-- The same for a newcomer that wants at most so many ahead, if it says so. Returns how many are, if these are more.
local function join_behind(queue, plan, member, place, most)
  local ahead = most and redis.call('ZCARD', waiters) - #plan.leaves
  if ahead and ahead > tonumber(most) then return ahead end
  join(queue, plan, member, place)
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
