-- Writes new holds.
-- @include lib/clock: now
-- @include lib/text: text
-- @include format/hold: hold_text
-- @include lib/ends: last_end, keep_keys

local function write_grants(holds, grants)
  local fields, scores = { 'mode', holds.capacity }, {}
  if holds.capacity > 1 then fields = { 'mode', holds.capacity, 'used', holds.used } end
  for _, it in ipairs(grants) do
    fields[#fields + 1] = it.member
    fields[#fields + 1] = hold_text(it.units, text(it.token), '1', '0', it.label)
    scores[#scores + 1] = now + it.lease + kept
    scores[#scores + 1] = it.member
  end
  redis.call('HSET', lock, unpack(fields))
  if holds.capacity == 1 then
    redis.call('PEXPIRE', lock, grants[1].lease + kept)
  else
    redis.call('ZADD', ends, unpack(scores))
    keep_keys(lock, ends, last_end(ends))
  end
end
