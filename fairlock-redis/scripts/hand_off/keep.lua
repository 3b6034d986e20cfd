-- Gives a hold up, and leaves its units taken for a time, under another request of its owner.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: capacity, member and token of the hold, the member that keeps it, for how long (ms), until when it may begin (see lib/clock)
-- Returns: {kept} | {not_held} | {forgotten}, in a grace
-- Effects: the hold is the keeper's, with the count 0 and a new end, even an earlier one; the first in the queue is told to look
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local capacity, member, token, keeper, lasts, begin_by =
  ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
-- @include lib/format: newer
-- @include case/newer: -
-- @include lib/clock: now, text, late
-- @include lib/holds: last_end, read_holds, hold_of
-- @include lib/format: hold_text, read_hold, split_member
-- @include lib/tell: wake_plain, publish

-- From now on nothing that names the former member finds the hold: a late renewal would set its end anew, and the withdrawal of a
-- late attempt would end the hold. A repeat finds an end that is too late only if the attempt before was held back.
local holds, fields = read_holds(member), redis.call('HMGET', lock, member, keeper)
local held, kept_before = hold_of(holds, member, fields[1]), hold_of(holds, keeper, fields[2])
if held and held.token ~= token then held = nil end
if kept_before and kept_before.token ~= token then kept_before = nil end
if not held and not kept_before then return { grace_left and 'forgotten' or 'not_held' } end
if not kept_before and late(begin_by) then return late(begin_by) end
if kept_before and kept_before.left >= 0 then lasts = math.min(lasts, kept_before.left) end

local left, first = redis.call('PTTL', lock), redis.call('ZRANGE', waiters, '0', '0')[1]
-- Tries each kind of command without effect, since Redis undoes nothing. (PEXPIRE first: a full server never refuses it.)
redis.call('PEXPIRE', lock, left < 0 and lasts or math.max(1, left))
redis.call('HDEL', lock, 'nobody')
if ends then
  redis.call('ZREM', ends, 'nobody')
  redis.call('ZADD', ends, 'XX', '0', 'nobody')
end
if not kept_before then
  local units, _, _, heard, label = read_hold(fields[1])
  redis.call('HSET', lock, keeper, hold_text(units, text(token), '0', heard, label))
  redis.call('HDEL', lock, member)
  if ends then redis.call('ZREM', ends, member) end
end
if ends then
  redis.call('ZADD', ends, now + lasts, keeper)
  lasts = last_end(ends) - now + 1000
  redis.call('PEXPIRE', ends, lasts)
end
redis.call('PEXPIRE', lock, lasts)

-- Waiters may look only at a later end.
local client, number_of = split_member(first or '')
if client then publish('fairlock:' .. client, 'look ' .. number_of .. ' ' .. lock) end
if not ends then wake_plain() end
return { 'kept' }
