-- The holders of a lock, whichever discipline granted it, for `inspect` and for operators.
-- @include lib/clock: since, now
-- @include format/hold: read_hold
-- @include format/member: split_member
-- @include lib/last_grant: read_last_grant
-- @include lib/owner: read_holder
-- @include lib/numbers: end_of

-- The holds as {member, owner, request, units, token, count, label, lease left ms}, and their number: of several units the first
-- `many` by their ends, from this end on. If there are more, also the end of the last one. Token and label are known of holds by
-- this library only: from the hold, or from the record of the last grant. Nothing of a hash that is no lock.
local function list_holders(holds, many, from)
  if holds.is_foreign then
    local holder = read_holder(lock, read_last_grant(record)) or {}
    if not holder[1] then return {}, 0 end
    return { { holder[1], holder[1], '', '1', holder[3] or '', holder[2], holder[4] or '', redis.call('PTTL', lock) } }, 1
  elseif not holds.capacity or holds.capacity > 1 and not holds.first_end then
    return {}, 0
  end
  local members, ends_at, count = {}, {}, 1
  if holds.capacity == 1 then
    local fields = redis.call('HGETALL', lock)
    for at = 1, #fields, 2 do
      if split_member(fields[at]) then members[1], ends_at[1] = fields[at], now + redis.call('PTTL', lock) end
    end
  else
    from = from or '(' .. since
    local found = redis.call('ZRANGE', ends, from, '+inf', 'BYSCORE', 'LIMIT', '0', many, 'WITHSCORES')
    if not found[1] then return {}, 0 end
    count = redis.call('ZCARD', ends) - redis.call('ZRANK', ends, found[1])
    for at = 1, #found, 2 do
      members[#members + 1], ends_at[#ends_at + 1] = found[at], end_of(found[at + 1])
    end
  end
  local list = {}
  for at, field in ipairs(members[1] and redis.call('HMGET', lock, unpack(members)) or {}) do
    local units, token, hold_count, _, label = read_hold(field)
    local client, owner, request = split_member(members[at])
    if client and token then
      list[#list + 1] = { members[at], client .. ':' .. owner, request, units, string.format('%.0f', token), hold_count, label,
        ends_at[at] - now }
    end
  end
  return list, count, count > #members and ends_at[#ends_at] or nil
end
