-- Gives a hold to another owner.
-- KEYS: lock (Keys::lock), waiters (Keys::waiters), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: capacity, member and token of the hold, the member that adopts it, lease (ms)
-- Returns: {renewed} | {lost}
-- Effects: the hold is the adopter's, with the count 1 and a new end, even an earlier one; then the first in the queue is told to look
local lock, waiters, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local capacity, member, token, adopter, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
-- @include lib/format: newer, hold_text, read_hold, split_member
-- @include case/hold: layout
-- @include lib/clock: now, text
-- @include lib/holds: is_alike, last_end, renew, read_holds, hold_of
-- @include lib/tell: wake_plain, publish

-- A repeat is a renewal: if it comes late, it shortens nothing, and leaves the count as it is.
local lasts = lease + kept
if renew(lock, ends, adopter, token, nil, lasts) then return { 'renewed' } end
-- The server may have forgotten that another owner has adopted the hold, and still believes in it.
if grace_left then return in_grace() end

-- From now on nothing that names the former member finds the hold. An adopter that has a hold or a place by this request already is none.
local holds = read_holds(member)
local hold = holds.capacity and is_alike(holds.capacity, capacity) and hold_of(holds, member, holds.own)
local is_known = redis.call('HGET', lock, adopter) or redis.call('ZRANK', waiters, adopter)
if not hold or hold.token ~= token or is_known then return { 'lost' } end
local is_earlier = hold.left < 0 or lasts < hold.left
local first = is_earlier and redis.call('ZRANGE', waiters, '0', '0')[1] or ''

-- Tries each kind of command without effect, since Redis undoes nothing. (PEXPIRE first: a full server never refuses it.)
local key_left = redis.call('PTTL', lock)
redis.call('PEXPIRE', lock, key_left >= 0 and math.max(1, key_left) or ends and last_end(ends) - now + 1000 or lasts)
redis.call('HDEL', lock, 'nobody')
if ends then
  redis.call('ZREM', ends, 'nobody')
  redis.call('ZADD', ends, 'XX', '0', 'nobody')
end
local units, _, _, heard, label = read_hold(holds.own)
redis.call('HSET', lock, adopter, hold_text(units, text(token), '1', heard, label))
redis.call('HDEL', lock, member)
local key_lasts = lasts
if ends then
  redis.call('ZREM', ends, member)
  redis.call('ZADD', ends, now + lasts, adopter)
  key_lasts = last_end(ends) - now + 1000
  redis.call('PEXPIRE', ends, key_lasts)
end
redis.call('PEXPIRE', lock, key_lasts)

-- Waiters may look only at the later end.
local client, number_of = split_member(first)
if client then publish('fairlock:' .. client, 'look ' .. number_of .. ' ' .. lock) end
if is_earlier and not ends then wake_plain() end
return { 'renewed' }
