-- The holders of a lock, whichever discipline granted it, for `inspect` and for operators.
-- @include lib/clock: since, now
-- @include format/hold: read_hold
-- @include format/member: split_member
-- @include format/grant: read_last_grant
-- @include lib/owner: read_holder
-- @include lib/text: text
-- @include lib/numbers: end_of

-- A row for `inspect`, with the hold's member. What is not known is empty.
local function row_of(member, request, units, left, holder)
  local owner, count, token, label = unpack(holder, 1, 4)
  local held = token and math.max(0, now - math.floor(token / 1000)) or -1
  return { owner, request, units, token or '', count, label or '', left, held, member = member }
end

-- The holds, and their number: of several units the first `many` by their ends, from this end on. If there are more, also from which
-- end on to go on. Token and label are known of holds by this library only: from the hold, or from the record of the last grant.
-- Nothing of a hash that is no lock.
local function list_holders(holds, many, from)
  if holds.capacity == 1 then
    local holder = read_holder(lock, read_last_grant(record)) or {}
    if not holder[1] then return {}, 0 end
    return { row_of(holder.member or holder[1], holder.request or '', '1', redis.call('PTTL', lock), holder) }, 1
  end
  local found = holds.first_end and redis.call('ZRANGE', ends, from or '(' .. since, '+inf', 'BYSCORE', 'LIMIT', '0', many, 'WITHSCORES')
  if not found or not found[1] then return {}, 0 end
  local count, members, list = redis.call('ZCARD', ends) - redis.call('ZRANK', ends, found[1]), {}, {}
  for at = 1, #found, 2 do members[#members + 1] = found[at] end
  for at, field in ipairs(redis.call('HMGET', lock, unpack(members))) do
    local units, token, hold_count, _, label = read_hold(field)
    local client, owner, request = split_member(members[at])
    if client and token then
      local left = end_of(found[2 * at]) - now
      list[#list + 1] = row_of(members[at], request, units, left, { client .. ':' .. owner, hold_count, text(token), label })
    end
  end
  -- Ends with a fraction may lie in the same millisecond as the last one. But if so many do, the next ones are others.
  return list, count, count > #members and math.max(end_of(found[#found]) - 1, (from or 0) + 1) or nil
end
