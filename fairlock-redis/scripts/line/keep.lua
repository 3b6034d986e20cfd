-- Gives a hold up, and leaves its units taken for a time, under another request of its owner.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: the hold as `<capacity> <member> <token> `, the member that keeps it, for how long (ms), until when it may begin (see
--   lib/clock)
-- Returns: {kept} | {not_held} | {forgotten}, in a grace
-- Effects: the hold is the keeper's, with the count 0, and its end is set, also to an earlier one; the first in line is told to look
local lock, line, ends = KEYS[1], KEYS[2], KEYS[4]
local named, keeper, lasts, begin_by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include lib/clock: now, format_int, late

-- Nothing that names the former member finds the hold from now on: a late renewal would set its end anew, and the withdrawal of a
-- late attempt would end it. A repeat only finds an end that is too late, where the attempt before it was held back.
local capacity, member, token = string.match(named, '^(%d+) (.*) (%d+) $')
local kept_as = capacity .. ' ' .. keeper .. ' ' .. token .. ' '
local mode = redis.call('HGET', lock, 'mode') or ''
local left = redis.call('PTTL', lock)
local first = redis.call('ZRANGE', line, 0, 0)[1]

-- Whether it is held, or kept. As everywhere, each command is used without effect before the first write that has one.
local function keep_whole()
  if string.find(mode, kept_as, 1, true) == 1 then
    if left < 0 or left > tonumber(lasts) then redis.call('PEXPIRE', lock, lasts) end
    return true
  end
  if string.find(mode, named, 1, true) ~= 1 then return false end
  if late(begin_by) then return late(begin_by) end
  redis.call('PEXPIRE', lock, left < 0 and lasts or math.max(1, left))
  redis.call('HSET', lock, 'mode', kept_as .. '0' .. (string.match(mode, '^%d+(.*)$', #named + 1) or ' '))
  redis.call('PEXPIRE', lock, lasts)
  return true
end

local function keep_part()
  if not ends or string.sub(mode, 1, 3) ~= 'of ' then return false end
  local texts = redis.call('HMGET', lock, member, keeper)
  -- Its end, if the member holds by this token.
  local function end_of(text, name)
    local until_when = tonumber(redis.call('ZSCORE', ends, name) or 0)
    return string.match(text or '', '^%d+ (%d+) ') == token and until_when > now and until_when
  end
  local kept_until = end_of(texts[2], keeper)
  if not kept_until and not end_of(texts[1], member) then return false end
  if not kept_until and late(begin_by) then return late(begin_by) end
  local until_when = math.min(now + tonumber(lasts), kept_until or math.huge)
  redis.call('PEXPIRE', lock, left < 0 and format_int(until_when - now + 1000) or math.max(1, left))
  redis.call('ZADD', ends, 'XX', 0, '-')
  redis.call('ZREM', ends, '-')
  redis.call('HDEL', lock, '-')
  if not kept_until then
    local takes, mark, rest = string.match(texts[1], '^(%d+) %d+ %d+(@?%d*)(.*)$')
    redis.call('HSET', lock, keeper, takes .. ' ' .. token .. ' 0' .. mark .. rest)
    redis.call('HDEL', lock, member)
    redis.call('ZREM', ends, member)
  end
  redis.call('ZADD', ends, format_int(until_when), keeper)
  -- Both keys end a second after the last hold.
  local last = redis.call('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES')[2]
  local keep = format_int(math.min(tonumber(last), 4503599627370496) - now + 1000)
  redis.call('PEXPIRE', lock, keep)
  redis.call('PEXPIRE', ends, keep)
  return true
end

local kept_on = keep_whole() or keep_part()
if type(kept_on) == 'table' then return kept_on end
if not kept_on then return { grace_left and 'forgotten' or 'not_held' } end
-- Who waits may be waiting for a later end.
local client, number = string.match(first or '', '^(.*):([^:]*):[^:]*$')
if client then redis.pcall('PUBLISH', 'fairlock:' .. client, 'look ' .. number .. ' ' .. lock) end
if capacity == '1' then
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'), '0')
end
return { 'kept' }
