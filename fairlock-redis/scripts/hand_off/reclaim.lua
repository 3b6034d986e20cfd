-- Renews one hold of a durable client. In a grace a forgotten hold is reclaimed: the script writes it again.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: count of the hold (or empty: as it is), lease (ms); capacity, member, units and token of the hold; until when it may reclaim
--   (see lib/clock), how long before that it may have been sent (ms)
-- Returns: {renewed} | {renewed, 1} if it is lost
-- Effects: the lease is raised, and the count set; in a grace: the hold, and the sequence
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local count, lease, capacity, member = ARGV[1] ~= '' and ARGV[1] or nil, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local units, token, begin_by, attempt_ttl = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
-- @include lib/format: newer, read_hold
-- @include case/hold: layout
-- @include lib/clock: late
-- @include lib/holds: is_alike, renew, read_holds
-- @include lib/queue: read_queue
-- @include lib/rule: new_plan, drop, grant
-- @include lib/write: write

-- Holds of an old file are in the way of live holds. A hold that was heard in this grace is live. The others give way, the oldest
-- first, until the reclaim fits: the holder of a live one reclaims it later in this grace. Live holds always fit beside each other, so in
-- the end all live holds are there. But if one of two holds takes all units, the earlier hold was over when the later began: the later
-- hold counts, and a reclaim of the earlier hold is late. (A hold with the same token was adopted by that owner, or from it:
-- nobody can know which of the two is the later one.)
--
-- Holds of a semaphore may be reclaimed in any order, so a reclaim has to fit into the greatest number of permits named so far.
--
-- Returns the members whose holds give way (nil if the reclaim does not fit even then), and the lock's new capacity.
local function make_room(holds)
  local agrees = holds.capacity and is_alike(holds.capacity, capacity)
  local all = agrees and math.max(holds.capacity, capacity) or capacity
  local fits = not holds.capacity or agrees and holds.used + units <= all
  -- The request itself may have had an earlier hold. All holds are read only if it doesn't fit beside them.
  local fields = fits and { member, holds.own or '' } or redis.call('HGETALL', lock)
  local others, gone, used = {}, {}, holds.used
  for at = 1, #fields, 2 do
    local takes, its_token, _, its_grace = read_hold(fields[at + 1])
    local is_live = its_grace == grace_id
    if takes == all or units == all then is_live = its_token and its_token >= token end
    if its_token then others[#others + 1] = { member = fields[at], token = its_token, units = takes, is_live = is_live } end
  end
  table.sort(others, function(one, other) return one.token < other.token end)
  for _, other in ipairs(others) do
    local fits_now = used + units <= all and agrees
    if other.member == member or not fits_now and not other.is_live then
      used = used - other.units
      gone[#gone + 1] = other.member
    end
  end
  return used + units <= all and (#gone == #others or agrees) and gone or nil, all
end

-- A mark tells that the hold was heard in this grace. Only what was sent in this life counts: the hold of a late reclaim may be
-- over, and its units another's.
local heard = grace_left and begin_by / 1000 - attempt_ttl >= life_began and not late(begin_by) and grace_id or nil
if renew(lock, ends, member, token, count, lease + kept, heard) then return { 'renewed' } end
if not grace_left then return { 'renewed', 1 } end
if late(begin_by) then return late(begin_by) end
local holds, queue, plan = read_holds(member), read_queue(member), new_plan()
if holds.is_foreign or has_ended(record, token) then return { 'renewed', 1 } end
local gone, all = make_room(holds)
if not gone then return { 'renewed', 1 } end
queue.last = math.max(queue.last, token)
drop(holds, plan, gone)
grant(holds, queue, plan, member, { units = units, capacity = all, label = '' }, lease)
plan.grants[1].token = token
plan.leaves[1] = member
write(holds, queue, plan)
renew(lock, ends, member, token, count, lease + kept, heard)
return { 'renewed' }
