-- Writes new holds.
-- @include lib/clock: now
-- @include lib/numbers: text, end_of
-- @include format/hold: hold_text

local KEEP_FOR = 1000

-- Both keys of a lock with several units live until a second after this end, or as long as they did.
local function keep_until(last_end)
  local left = redis.call('PTTL', lock)
  if left < 0 then
    -- New, or made endless by hand: it ends with the last hold.
    last_end = math.max(last_end, end_of(redis.call('ZRANGE', ends, '0', '0', 'REV', 'WITHSCORES')[2]))
  end
  local keep = math.max(left, last_end - now + KEEP_FOR)
  redis.call('PEXPIRE', lock, keep)
  redis.call('PEXPIRE', ends, keep)
end

local function write_grants(holds, grants)
  local fields, scores, last_end = { 'mode', holds.capacity }, {}, 0
  if holds.capacity > 1 then fields = { 'mode', holds.capacity, 'used', holds.used } end
  for _, it in ipairs(grants) do
    local ends_at = now + it.lease + kept
    fields[#fields + 1] = it.member
    fields[#fields + 1] = hold_text(it.units, text(it.token), '1', '0', it.label)
    scores[#scores + 1] = ends_at
    scores[#scores + 1] = it.member
    last_end = math.max(last_end, ends_at)
  end
  redis.call('HSET', lock, unpack(fields))
  if holds.capacity == 1 then
    redis.call('PEXPIRE', lock, grants[1].lease + kept)
  else
    redis.call('ZADD', ends, unpack(scores))
    keep_until(last_end)
  end
end
