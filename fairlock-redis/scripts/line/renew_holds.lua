-- Renews holds: their leases, and their counts if these are told. It hands nothing on.
-- KEYS: of each hold the lock (Keys::lock), or lock and ends (Keys::ends)
-- ARGV: count of each hold (or empty: as it is), lease of each (ms), how many keys a hold has (1 or 2), then each hold as
--   `<capacity> <member> <token> `
-- Returns: {renewed, position of each hold that is lost, minus that of each whose renewal was refused}; for one hold the
--   refusal itself
-- Effects: each lease is raised, and shortened only after a clock that was set back; the counts are set
local count, lease, step = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- @include lib/hold: renew

-- What nearly all renewals of holds of all units come to; all else is left to the function. GT (raise only) came with Redis 7, as
-- this number did.
local fast = count == '' and redis.REDIS_VERSION_NUM
local lasts, n_holds = kept == 0 and lease or lease + kept .. '', #KEYS / step
local answer = { 'renewed' }
for at = 1, n_holds do
  local lock, ends, hold = KEYS[step * (at - 1) + 1], step == 2 and KEYS[2 * at], ARGV[3 + at]
  local mode = fast and redis.pcall('HGET', lock, 'mode')
  local renewed = type(mode) == 'string' and string.find(mode, hold, 1, true) == 1
    and redis.pcall('PEXPIRE', lock, lasts, 'GT') == 1
  if not renewed and grace_left then
    -- A part has to be noted as heard, or it would give way to claims beside it, and its holder would still believe: three of two
    -- units. And a hold that is missing may be claimed. Both are done for one hold at a time.
    answer[#answer + 1] = -at
  elseif not renewed and n_holds == 1 then
    if not renew(lock, ends, hold, count, lasts) then answer[2] = 1 end
  elseif not renewed then
    local done, is_held = pcall(renew, lock, ends, hold, count, lasts)
    if not done then answer[#answer + 1] = -at elseif not is_held then answer[#answer + 1] = at end
  end
end
return answer
