-- Renews one hold of a durable client. In a grace it is claimed: if the server has forgotten it, it is written again.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: count of the hold (or empty: as it is), lease (ms), the hold as `<capacity> <member> <token> `, units, until when it may claim
--   (see lib/clock), how long before that it may have been sent (ms)
-- Returns: {renewed} | {renewed, 1} if it is lost
-- Effects: the lease is raised, and the count set; in a grace: the hold, and the sequence
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local count, lease, named, takes, begin_by = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local attempt_ttl = ARGV[6]
-- @include lib/clock: late, parse_int
-- @include lib/line: remove_place
-- @include lib/holds: open_lock, begin, drop, grant, settle
-- @include lib/hold: renew

-- A mark tells that the hold was heard in this grace. Only what was sent in this life counts: the hold of a late claim may be
-- over, and its units another's.
local was_sent_in_this_life = grace_left and begin_by / 1000 - attempt_ttl >= life_began and not late(begin_by)
local heard = was_sent_in_this_life and '@' .. grace_id
if renew(lock, ends, named, count, lease + kept, heard) then return { 'renewed' } end
if not grace_left then return { 'renewed', 1 } end
if late(begin_by) then return late(begin_by) end
local capacity, member, token = string.match(named, '^(%d+) (.*) (%d+) $')
capacity = tonumber(capacity)
local state = open_lock(lock, line, record, ends, nil, '')
if state.is_foreign or has_ended(record, token) then return { 'renewed', 1 } end

-- Holds of an old file are in the way of live ones. One that was heard in this grace is live; all others give way, the oldest
-- first, as far as that is needed: a live one among them claims its units later in this grace. Live ones always fit beside each
-- other, so in the end all of them are there. But where one of two takes all units, it has been held before or after the other: the
-- later one counts, and a claim of the earlier one is late.
local others, gone, used = {}, {}, state.used
local fits = state.count == 0 or state.capacity == capacity and used + takes <= capacity
if state.whole then
  others[1] = state.whole
elseif state.count > 0 and ends then
  -- The request itself may have had an earlier hold. All holds are read only if it doesn't fit beside them.
  local fields = fits and { member, redis.call('HMGET', lock, member)[1] or '' } or redis.call('HGETALL', lock)
  for at = 1, #fields, 2 do
    local units, its_token, its_grace = string.match(fields[at + 1], '^(%d+) (%d+) %d+@?(%d*) ')
    if its_token and (its_grace ~= grace_id or takes == capacity) and fields[at] ~= 'mode' then
      others[#others + 1] = { member = fields[at], token = parse_int(its_token) or 0, takes = parse_int(units) or 0 }
    end
  end
  table.sort(others, function(one, other) return one.token < other.token end)
end
for _, other in ipairs(others) do
  local is_beside = takes < capacity and not state.whole
  local is_in_the_way = used + takes > capacity or state.capacity ~= capacity
  local gives_way = is_in_the_way and (is_beside or other.token < tonumber(token))
  if gives_way or other.member == member then
    used = used - other.takes
    gone[#gone + 1] = other.member
  end
end
if #gone < state.count and (state.capacity ~= capacity or used + takes > capacity) then return { 'renewed', 1 } end
state.last = math.max(state.last, tonumber(token))
begin(state)
drop(state, gone)
remove_place(state, member)
grant(state, member, takes, capacity, lease, '', tonumber(token))
settle(state)
renew(lock, ends, named, count, lease + kept, heard)
return { 'renewed' }
