-- Gives a hold to another owner.
-- KEYS: lock (Keys::lock), record (Keys::record), and unless it is plain queue (Keys::queue), timeouts (Keys::timeouts)
-- ARGV: owner, request and token of the hold, the owner that adopts it, lease (ms), channel
-- Returns: {renewed} | {lost}
-- Effects: hash and record name the adopter, the count is 1, and the lease is set, even to a shorter one; then dead waiters at the
--   head are removed, and the first in the queue is told, or all
local lock, record, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, request, token, adopter, lease, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
-- @include lib/format: newer, grant_text, read_last_grant
-- @include lib/redisson: is_granted, drop_expired, wake_first

local last_grant = read_last_grant(record)
local is_newer = newer(last_grant.last)
if is_newer then return is_newer end
-- A hold whose record is missing may be one of another request: it is given to nobody.
local held, is_repeat = redis.call('HGET', lock, owner), is_granted(redis.call('HGET', lock, adopter), last_grant, adopter, request)
if not is_repeat and not is_granted(held, last_grant, owner, request) or last_grant[3] ~= token then return { 'lost' } end
local left, record_left = redis.call('PTTL', lock), redis.call('PTTL', record)
-- A repeat that comes late shortens nothing.
local is_earlier, first = not is_repeat and (left < 0 or lease < left), nil
if is_earlier then first = drop_expired(queue, timeouts) end
-- The first change nothing if a right is missing. (DEL in place of HDEL, for which this discipline needs no right.)
redis.call('PEXPIRE', lock, left < 0 and lease or math.max(1, left))
if not is_repeat then
  redis.call('HSET', lock, owner, held)
  redis.call('DEL', lock)
  redis.call('HSET', lock, adopter, 1)
  redis.call('HSET', record, 'grant', grant_text(adopter, request, token, last_grant[4]))
  redis.call('PEXPIRE', lock, lease)
elseif left < lease then
  redis.call('PEXPIRE', lock, lease)
end
-- It tells whose the hold is.
if record_left < 2 * lease then redis.call('PEXPIRE', record, string.format('%.0f', 2 * lease)) end
if is_earlier then wake_first(channel, queue, first) end
return { 'renewed' }
