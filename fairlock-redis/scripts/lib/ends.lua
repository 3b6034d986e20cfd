-- How long the keys of a lock of several units live.
-- @include lib/clock: now
-- @include lib/numbers: end_of

local function last_end(ends)
  return end_of(redis.call('ZRANGE', ends, '0', '0', 'REV', 'WITHSCORES')[2])
end

-- Both keys live until a second after the last hold's end, or as long as before. So a key that was made endless by hand ends, too.
local function keep_keys(lock, ends, last)
  local keep = math.max(redis.call('PTTL', lock), last - now + 1000)
  redis.call('PEXPIRE', lock, keep)
  redis.call('PEXPIRE', ends, keep)
end
