-- Sets a hold's count.
-- KEYS: lock (Keys::lock), record (Keys::record)
-- ARGV: owner, request, token, count
-- Returns: {set} | {lost}
-- Effects: the count is set, not incremented, so a repeat is harmless
local lock, record = KEYS[1], KEYS[2]
local owner, request, token, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include lib/last_grant: read_last_grant, is_hold

local held = redis.call('HGET', lock, owner)
if not is_hold(held, read_last_grant(record), owner, request, token) then return { 'lost' } end
-- It changes nothing, but a full server never refuses it, and so takes what follows.
local left = redis.call('PTTL', lock)
if left > 0 then redis.call('PEXPIRE', lock, left) end
redis.call('HSET', lock, owner, count)
return { 'set' }
