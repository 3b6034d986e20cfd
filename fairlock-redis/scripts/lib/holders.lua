-- The holders of a lock, whichever discipline granted it, for `inspect` and for operators.

-- @include lib/clock: now, format_int, parse_int
-- @include lib/last_grant: read_last_grant
-- @include lib/owner: read_holder
-- @include lib/line: split_member
-- @include lib/holds: LAST_END

-- The holds as {member, owner, request, units, token, count, label, lease left ms}, and their number: of parts the first `many` by
-- their ends, from this end on. If there are more, also the end of the last one. Token and label are known of holds by this library
-- only: from the hold, or from the record of the last grant. Nothing of a hash that is no lock.
local function list_holders(state, many, from)
  local whole = state.whole
  if whole then
    local client, number, request = split_member(whole.member)
    local owner = client and client .. ':' .. number or whole.member
    local takes, token = format_int(state.capacity), format_int(whole.token)
    return { { whole.member, owner, request or '', takes, token, whole.count, whole.label, state.left } }, 1
  elseif state.is_foreign then
    local holder = read_holder(state.lock, read_last_grant(state.record)) or {}
    if not holder[1] then return {}, 0 end
    return { { holder[1], holder[1], '', '1', holder[3] or '', holder[2], holder[4] or '', state.left } }, 1
  elseif state.count == 0 or not state.ends then
    return {}, 0
  end
  local found = {}
  from = from or '(' .. format_int(now)
  local first = redis.call('ZRANGE', state.ends, from, '+inf', 'BYSCORE', 'LIMIT', 0, many, 'WITHSCORES')
  if not first[1] then return {}, 0 end
  local count = state.count - redis.call('ZRANK', state.ends, first[1])
  for at = 1, #first, 2 do
    local member, ends = first[at], math.min(tonumber(first[at + 1]), LAST_END)
    local client, number, request = split_member(member)
    local field = redis.call('HMGET', state.lock, member)[1] or ''
    local takes, token, hold_count, label = string.match(field, '^(%d+) (%d+) (%d+)@?%d* (.*)$')
    if client and parse_int(token) then
      found[#found + 1] = { member, client .. ':' .. number, request, takes, token, hold_count, label, ends - now }
    end
  end
  return found, count, 2 * count > #first and first[#first] or nil
end
