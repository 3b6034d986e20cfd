-- Takes the lock from its holders, or from one, and grants it to all waiters at the head whose units are free.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: options (see acquire), capacity, until when it may take the lock (see lib/clock), to take only one hold, whenever
--   the script arrives, the member and token of that hold, else '' twice; and if the script before left holders, what it told of them
-- Returns: {taken, 1 if there is more to do} | {not_held, as before}; then, if holders are left, the greatest token to take, and the
--   end from which to go on
-- Effects: holds are dropped; the former holders and the new ones are told
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local options, capacity, begin_by, member, token, last_token, from =
  ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
-- @include lib/format: newer
-- @include case/hold: layout
-- @include lib/clock: number, text, late
-- @include lib/holds: read_holds, hold_of, refusal
-- @include lib/holders: list_holders, notify_taken
-- @include lib/queue: NOBODY, read_queue
-- @include lib/rule: new_plan, drop, hand_on
-- @include lib/write: write
-- @include lib/tell: tell, more_to_do

-- How many holders one script looks at. Later ones are left to the next script: those who were granted the lock meanwhile keep it,
-- since their tokens are greater. Ends only move away from `from`, by renewals.
local MOST_TAKEN = 500
local takes_one = member ~= ''
if not takes_one and not last_token and late(begin_by) then return late(begin_by) end
local holds, queue, plan = read_holds(member), read_queue(NOBODY), new_plan()
local taken, n_holders, more_from, found = {}, 0, nil, nil
if takes_one then
  local hold = hold_of(holds, member, holds.own)
  if hold and text(hold.token) == token then taken[1] = { string.match(member, '^(.*):'), '', hold.units, token, member = member } end
  last_token = token
else
  local refused = refusal(holds, capacity)
  if refused then return refused end
  last_token = last_token or text(math.max(queue.last, number + (grace_left or 0) * 1000))
  found, n_holders, more_from = list_holders(holds, MOST_TAKEN, from)
  for _, holder in ipairs(found) do
    if (tonumber(holder[4]) or 0) <= tonumber(last_token) then taken[#taken + 1] = holder end
  end
  table.sort(taken, function(one, other) return tonumber(one[4]) < tonumber(other[4]) end)
end
if #taken == 0 and n_holders == 0 and not queue.head and #holds.over == 0 and not grace_left then return { 'not_held', 0 } end

-- In a grace: ends one hold, or all that were granted before the end of the grace, even holds that the server has forgotten.
local is_whole = not takes_one or not ends or taken[1] and taken[1][3] == holds.capacity
if grace_left then end_in_grace(record, queue, plan, tonumber(last_token), is_whole) end
local members = {}
for at, holder in ipairs(taken) do members[at] = holder.member end
drop(holds, plan, members)
drop(holds, plan, holds.over)
hand_on(holds, queue, plan, capacity)
write(holds, queue, plan)
for _, holder in ipairs(taken) do notify_taken(holder[1], holder[4], lock) end
tell(holds, plan)
return { #taken > 0 and 'taken' or 'not_held', more_to_do(holds, plan), more_from and last_token, more_from }
