-- Renews holds: their leases, and their counts if these are told. It hands nothing on.
-- KEYS: of each hold the lock (Keys::lock), or lock and ends (Keys::ends)
-- ARGV: count of each hold (or empty: as it is), lease of each (ms), how many keys a hold has (1 or 2), then of each hold member, token
-- Returns: {renewed, position of each hold that is lost, minus that of each whose renewal was refused}; for one hold the
--   refusal itself
-- Effects: each lease is raised, and shortened only after a clock that was set back; the counts are set
local count, lease, step = ARGV[1] ~= '' and ARGV[1] or nil, ARGV[2], tonumber(ARGV[3])
local lasts, renewed = lease + kept, {}
-- @include case/renew: -

-- All else.
-- @include lib/hold: renew
local answer, n_holds = { 'renewed' }, #KEYS / step
for at = 1, n_holds do
  local key = step * (at - 1) + 1
  local lock, ends, member, token = KEYS[key], step == 2 and KEYS[key + 1], ARGV[2 + 2 * at], tonumber(ARGV[3 + 2 * at])
  if grace_left and ends then
    -- In a grace the hold has to be marked as heard: otherwise it would give way to reclaims, while its holder still believes in it.
    -- `reclaim.lua` does that for one hold at a time, and reclaims missing holds.
    answer[#answer + 1] = -at
  elseif n_holds == 1 then
    if not renew(lock, ends, member, token, count, lasts) then answer[2] = grace_left and -1 or 1 end
  elseif not renewed[at] then
    local done, is_held = pcall(renew, lock, ends, member, token, count, lasts)
    if not done or not is_held then answer[#answer + 1] = (not done or grace_left) and -at or at end
  end
end
return answer
