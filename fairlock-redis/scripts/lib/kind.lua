-- Which kind of lock a name is in use as. One with several holders has the field `mode` in its hash (see lib/shared).

local function kind_of(capacity)
  return capacity == '4294967295' and 'a read-write lock' or 'a semaphore of ' .. capacity .. ' permits'
end

local function is_shared(mode)
  return string.find(mode or '', '^shared %d') ~= nil
end

-- The reply where the lock is in use as another kind than `wanted`, or with another number of permits.
local function mismatch(mode, wanted)
  local capacity = string.match(mode or '', '^shared (%d+)')
  local found = capacity and kind_of(capacity) or 'an exclusive lock'
  return redis.error_reply('MISMATCH it is ' .. found .. ', and not ' .. wanted)
end
