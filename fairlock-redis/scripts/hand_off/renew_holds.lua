-- uses: lib/hold
-- Renews holds: their leases, and their counts if these are told. It needs the locks' keys alone.
-- KEYS: lock (Keys::lock) of each hold
-- ARGV: count of each hold (or empty: as it is), lease of each (ms), then each hold as `<owner>:<request> <token> `
-- Returns: {renewed, position of each hold that is lost, minus that of each whose renewal was refused}; for one hold the
--   refusal itself
-- Effects: each lease is raised, and shortened only after a clock that was set back; the counts are set
local count, lease = ARGV[1], ARGV[2]
local first_hold = 3
--life: lease = lease + kept

-- What nearly all renewals come to; all else is left to the function. GT (raise only) came with Redis 7, as this number did.
local fast = count == '' and redis.REDIS_VERSION_NUM
local answer = { 'renewed' }
for at, lock in ipairs(KEYS) do
  local hold = ARGV[first_hold - 1 + at]
  local held = fast and redis.pcall('HGET', lock, 'fairlock')
  local renewed = type(held) == 'string' and string.find(held, hold, 1, true) == 1
    and redis.pcall('PEXPIRE', lock, lease, 'GT') == 1
  if not renewed and #KEYS == 1 then
    if not renew(lock, hold, count, lease) then answer[2] = 1 end
  elseif not renewed then
    local done, is_held = pcall(renew, lock, hold, count, lease)
    --life: if grace_left and not is_held then done = false end
    if not done then answer[#answer + 1] = -at elseif not is_held then answer[#answer + 1] = at end
  end
end
return answer
