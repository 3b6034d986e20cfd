-- The holders of a lock, whichever discipline granted the lock: the one of an exclusive lock; and all, for `inspect` and for operators.

-- @part
-- The one holder of an exclusive lock, whichever discipline granted it. Redisson's hash has the owner as its field, with the hold
-- count as the value. Ours has the field `mode` and others (see lib/holds).
--
-- A hash in which none of these can be read is another program's: nobody waits for it, and nothing deletes it.
-- @include lib/format: newer, int, read_hold, split_member
-- @include lib/clock: text
-- @include lib/tell: publish

-- A hash with more fields is no exclusive lock, and may be huge. Redisson's read-write lock has a field for each reader.
local MOST_FIELDS = 100

-- The holder as {owner, count, token, label}, of our own hold with member and request; or with the capacity of another kind of lock,
-- `is_foreign`, or the refusal of a later layout (`newer`), instead. Nil if the lock is free. Token and label are known of holds by this
-- library only: from the field, or from the record of the last grant.
local function read_holder(lock, last_grant)
  local length = redis.call('HLEN', lock)
  if length == 0 then return nil end
  local mode = redis.call('HMGET', lock, 'mode')[1]
  local capacity = int(mode)
  if capacity and capacity ~= 1 then return { capacity = capacity } end
  if newer(mode) or newer(last_grant.last) then return { newer = newer(mode) or newer(last_grant.last) } end
  local is_small = length <= MOST_FIELDS or mode == 'read' or mode == 'write'
  local fields, any = is_small and redis.call('HGETALL', lock) or {}, { is_foreign = true }
  for index = 1, #fields, 2 do
    local field, value = fields[index], fields[index + 1]
    local client, number, request = split_member(field)
    local _, token, count, _, label = read_hold(value)
    if capacity and client and token then
      return { client .. ':' .. number, count, text(token), label, member = field, request = request }
    end
    if field == last_grant[1] then return { field, value, last_grant[3], last_grant[4] } end
    -- An owner begins with the UUID of a client. So do Redisson's owners; a writer's ends with `:write`.
    client = string.match(field, '^([%x-]+):%-?%d')
    if client and #client >= 32 and string.find(value, '^%d+$') then any = { field, value } end
  end
  return any
end

-- The error reply if the lock is in use with another capacity than the client names; it names the capacity in use.
local function mismatch(found)
  return redis.error_reply(string.format('MISMATCH %.0f', found))
end

-- The error reply if the name is in use, but not as an exclusive lock.
local function not_exclusive(holder)
  if holder and holder.capacity then return mismatch(holder.capacity) end
  if holder and holder.newer then return holder.newer end
  return holder and holder.is_foreign and redis.error_reply('FOREIGN no field of the hash is a holder of a lock') or nil
end

-- Tells the former holder of the loss, if the holder is a client of fairlock.
local function notify_taken(owner, token, name)
  local client, number = string.match(owner, '^(.*):(.-)$')
  if client and tonumber(token) then
    publish('fairlock:' .. client, 'taken ' .. number .. ' ' .. token .. ' ' .. name)
  end
end

-- @part
-- @include lib/clock: since, now, text
-- @include lib/format: read_hold, split_member, read_last_grant, end_of
-- @include lib/holders: read_holder

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
