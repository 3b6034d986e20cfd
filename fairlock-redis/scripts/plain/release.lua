-- Releases the lock and tells the waiters.
-- KEYS: lock (Keys::lock), record (Keys::record)
-- ARGV: owner, request, token, channel
-- Returns: {released} | {not_held}
-- Effects: hash deleted; message `0`
local lock, record = KEYS[1], KEYS[2]
local owner, request, token, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- @include lib/last_grant: read_last_grant, is_hold

local held = redis.call('HGET', lock, owner)
if not is_hold(held, read_last_grant(record), owner, request, token) then return { 'not_held' } end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, '0')
return { 'released' }
