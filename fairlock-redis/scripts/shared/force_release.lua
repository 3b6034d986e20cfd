-- uses: lib/clock lib/kind lib/owner lib/places lib/shared
-- Takes the lock from all its holders, or from one, and grants it to all at the head whose units are free.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: options (see lib/places), capacity, until when it may take the lock (see lib/clock), and to take one hold only, at any
--   time, its member, token and a space
-- Returns: {taken, 1 if there is more to do} | {not_held, as before}
-- Effects: holds are dropped; the former holders and the new ones are told
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local options, capacity, begin_by, named = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not named and late(begin_by) then return late(begin_by) end
local state = open_lock(lock, holds, line, places, sequence, nil, options)
local members, token_of = {}, {}
if named then
  local member, token = string.match(named, '^(.*) (%d+) $')
  local hold = hold_of(state, member)
  if hold and format_int(hold.token) == token then members[1], token_of[member] = member, hold.token end
else
  local refused = refusal(state, tonumber(capacity))
  if refused then return refused end
  members = state.count > 0 and redis.call('ZRANGE', holds, '(' .. format_int(now), '+inf', 'BYSCORE') or {}
  for _, member in ipairs(members) do
    token_of[member] = parse_int(string.match(redis.call('HMGET', lock, member)[1] or '', '^%d+ (%d+) ')) or 0
  end
  table.sort(members, function(one, other) return token_of[one] < token_of[other] end)
end
if #members == 0 and state.length == 0 and #state.over == 0 then return { 'not_held', 0 } end

begin(state, 'holder')
drop(state, members)
drop_over(state)
hand_on(state)
settle(state)
for _, member in ipairs(members) do
  local client, number = split_member(member)
  local message = 'taken ' .. (number or '') .. ' ' .. format_int(token_of[member]) .. ' ' .. lock
  if client then redis.pcall('PUBLISH', CLIENT_PREFIX .. client, message) end
end
push(state)
return { #members > 0 and 'taken' or 'not_held', more_to_do(state) }
