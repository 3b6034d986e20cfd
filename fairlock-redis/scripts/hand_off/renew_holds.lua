-- Renews holds: their leases, and their counts if these are told. It hands nothing on.
-- KEYS: of each hold the lock (Keys::lock), or lock and ends (Keys::ends)
-- ARGV: count of each hold (or empty: as it is), lease of each (ms), how many keys a hold has (1 or 2), then of each hold member, token
-- Returns: {renewed, position of each hold that is lost, minus that of each whose renewal was refused}; for one hold the
--   refusal itself
-- Effects: each lease is raised, and shortened only after a clock that was set back; the counts are set
local count, lease, step = ARGV[1] ~= '' and ARGV[1] or nil, ARGV[2], tonumber(ARGV[3])
local lasts, renewed = lease + kept, {}
-- @include case/hold: raise

-- All else.
-- @include lib/format: newer
-- @include lib/holds: renew

-- The refusal of a single hold is the reply; of many each has its own.
local function unprotected(run, ...) return true, run(...) end
local answer, try = { 'renewed' }, #KEYS == step and unprotected or pcall
for at = 1, #KEYS / step do
  local key = step * (at - 1) + 1
  local lock, ends, member, token = KEYS[key], step == 2 and KEYS[key + 1], ARGV[2 + 2 * at], tonumber(ARGV[3 + 2 * at])
  -- In a grace a hold of several units has to be marked as heard: otherwise it would give way to reclaims, while its holder still
  -- believes in it. `reclaim.lua` does that for one hold at a time, and reclaims missing holds.
  local done, is_held = not (grace_left and ends), renewed[at]
  if done and not is_held then done, is_held = try(renew, lock, ends, member, token, count, lasts) end
  local refused = done and not is_held and newer(redis.call('HGET', lock, 'mode'))
  if refused and #KEYS == step then return refused end
  if not done or not is_held then answer[#answer + 1] = (not done or grace_left or refused) and -at or at end
end
return answer
