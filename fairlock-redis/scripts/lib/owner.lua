-- The one holder of an exclusive lock, whichever discipline granted it. Redisson's hash has the owner as its field, with the hold
-- count as the value. Our fair lock has the field `mode` instead (see lib/holds), and so has a lock of several units.
--
-- A hash in which none of these can be read is another program's: nobody waits for it, and nothing deletes it.

-- @include lib/kind: mismatch

-- A hash with more fields is no exclusive lock, and may be huge. Redisson's read-write lock has a field for each reader.
local MOST_FIELDS = 100

-- The holder as {owner, count, token, label}; or with the capacity of another kind of lock, or `is_foreign`, instead. Nil if the
-- lock is free. Token and label are known of holds by this library only: from the field, or from the record of the last grant.
local function read_holder(lock, last_grant)
  local length = redis.call('HLEN', lock)
  if length == 0 then return nil end
  local mode = redis.call('HMGET', lock, 'mode')[1]
  local whole = string.match(mode or '', '^(%d+) [^ ]+ %d+ %d+ ')
  local capacity = tonumber(whole or string.match(mode or '', '^of (%d+) %d+$'))
  if capacity == 1 then
    local owner, token, count, label = string.match(mode, '^1 (.-):[^: ]* (%d+) (%d+) (.*)$')
    if owner then return { owner, count, token, label } end
  elseif capacity then
    return { capacity = capacity }
  end
  local is_small = length <= MOST_FIELDS or mode == 'read' or mode == 'write'
  local fields, any = is_small and redis.call('HGETALL', lock) or {}, { is_foreign = true }
  for index = 1, #fields, 2 do
    local field, value = fields[index], fields[index + 1]
    if field == last_grant[1] then return { field, value, last_grant[3], last_grant[4] } end
    -- An owner begins with the UUID of a client, as Redisson's, which appends `:write` to that of a writer.
    local client = string.match(field, '^([%x-]+):%-?%d')
    if client and #client >= 32 and string.find(value, '^%d+$') then any = { field, value } end
  end
  return any
end

local function foreign()
  return redis.error_reply('FOREIGN no field of the hash is a holder of a lock')
end

-- The error reply if the name is in use, but not as an exclusive lock.
local function not_exclusive(holder)
  if holder and holder.capacity then return mismatch(holder.capacity) end
  return holder and holder.is_foreign and foreign() or nil
end
