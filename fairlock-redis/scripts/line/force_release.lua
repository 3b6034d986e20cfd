-- Takes the lock from its holders, or from one, and grants it to all at the head whose units are free.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: options (see lib/line), capacity, until when it may take the lock (see lib/clock), and to take one hold only, at any time,
--   it as `<capacity> <member> <token> `, else nothing; and if a script has left holders, what it said: the last token, and the end
-- Returns: {taken, 1 if there is more to do} | {not_held, as before}; then, if holders are left, the greatest token of any, and the
--   end of the last one that was looked at
-- Effects: holds are dropped; the former holders and the new ones are told
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local options, capacity, begin_by, named, last_token, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
-- @include lib/clock: now_micros, format_int, late
-- @include lib/last_grant: read_last_grant, notify_taken
-- @include lib/holds: open_lock, hold_of, refusal, begin, drop, hand_on, settle, push, more_to_do
-- @include lib/holders: list_holders

-- How many holders one script looks at. Later ones are left to the next script: those who were granted the lock meanwhile keep it,
-- since their tokens are greater. Ends only move away from `from`, by renewals.
local MOST_TAKEN = 500
if named == '' and not last_token and late(begin_by) then return late(begin_by) end
local state = open_lock(lock, line, record, ends, nil, options)
local taken, found, n_holders, more_from = {}, {}, 0, nil
if named ~= '' then
  local member, token = string.match(named, '^%d+ (.*) (%d+) $')
  local hold = hold_of(state, member)
  if hold and format_int(hold.token) == token then
    taken = { { member, string.match(member, '^(.*):'), '', format_int(hold.takes), token } }
  end
  -- If it was forgotten, its claim must not bring it back.
  if grace_left then last_token = token end
else
  local refused = refusal(state, tonumber(capacity), read_last_grant(record))
  if refused then return refused end
  last_token = last_token or format_int(math.max(state.last, now_micros))
  if grace_left then last_token = format_int(math.max(state.last, now_micros + grace_left * 1000)) end
  found, n_holders, more_from = list_holders(state, MOST_TAKEN, from)
  for _, holder in ipairs(found) do
    if (tonumber(holder[5]) or 0) <= tonumber(last_token) then taken[#taken + 1] = holder end
  end
  table.sort(taken, function(one, other) return (tonumber(one[5]) or 0) < (tonumber(other[5]) or 0) end)
end
local is_idle = n_holders == 0 and #taken == 0 and state.length == 0 and #state.over == 0
if is_idle and not grace_left then return { 'not_held', 0 } end

-- In a grace, every hold is over that was granted before its end, known to the server or not; or this one.
local is_whole = not ends or taken[1] and taken[1][4] == format_int(state.capacity)
begin(state, false, unpack(grace_left and { ended_with(state, last_token, named == '' or is_whole) } or {}))
local members = {}
for at, holder in ipairs(taken) do members[at] = holder[1] end
drop(state, members)
drop(state, state.over)
hand_on(state)
settle(state)
for _, holder in ipairs(taken) do notify_taken({ holder[2], [3] = holder[5] ~= '' and holder[5] or nil }, lock) end
push(state)
local reply = { #taken > 0 and 'taken' or 'not_held', more_to_do(state) }
if more_from then reply[3], reply[4] = last_token, more_from end
return reply
