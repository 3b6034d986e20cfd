-- Which kind of lock a name is in use as.

local function kind_of(capacity)
  if capacity == 1 then return 'an exclusive lock' end
  return capacity == 4294967295 and 'a read-write lock' or string.format('a semaphore of %.0f permits', capacity)
end

-- The capacity that the field `mode` of a lock's hash tells, see lib/holds. Nil for a hash of another discipline.
local function capacity_of(mode)
  local whole = string.match(mode or '', '^(%d+) [^ ]+ %d+ %d+ [-+!]')
  return tonumber(whole or string.match(mode or '', '^of (%d+) %d+$'))
end

-- The reply where the lock is in use with another capacity than `wanted`.
local function mismatch(found, wanted)
  return redis.error_reply('MISMATCH it is ' .. kind_of(found) .. ', and not ' .. kind_of(wanted))
end
