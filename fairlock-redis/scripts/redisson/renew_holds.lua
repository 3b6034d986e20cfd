-- Renews holds: their leases and counts.
-- KEYS: lock (Keys::lock) and record (Keys::record) of each hold
-- ARGV: count of each hold, lease of each (ms), then owner, request and token of each
-- Returns: {renewed, position of each hold that is lost, minus that of each whose renewal was refused}; for one hold the
--   refusal itself
-- Effects: the lease of each hash is renewed, and the token's if it would end before; the counts are set, not incremented, so a
--   repeat is harmless
local count, lease = ARGV[1], ARGV[2]
-- @include lib/format: read_last_grant
-- @include lib/redisson: is_hold

-- Returns whether the hold is there.
local function renew(lock, record, owner, request, token)
  local held = redis.call('HGET', lock, owner)
  if not is_hold(held, read_last_grant(record), owner, request, token) then return false end
  local token_left = redis.call('PTTL', record)
  -- PEXPIRE comes first: a full server never refuses it, and it changes nothing if the right to HSET is missing.
  if held ~= count then
    local left = redis.call('PTTL', lock)
    redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
    redis.call('HSET', lock, owner, count)
  end
  local keep = 2 * tonumber(lease)
  redis.call('PEXPIRE', lock, lease)
  if token_left < keep then redis.call('PEXPIRE', record, string.format('%.0f', keep)) end
  return true
end

-- The refusal of a single hold is the reply; of many each has its own.
local function unprotected(run, ...) return true, run(...) end
local answer, try = { 'renewed' }, #KEYS == 2 and unprotected or pcall
for at = 1, #KEYS / 2 do
  local done, is_held = try(renew, KEYS[2 * at - 1], KEYS[2 * at], unpack(ARGV, 3 * at, 3 * at + 2))
  if not done or not is_held then answer[#answer + 1] = done and at or -at end
end
return answer
