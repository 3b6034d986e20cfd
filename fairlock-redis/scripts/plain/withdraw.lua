-- Says whether a request that ends was granted.
-- KEYS: lock (Keys::lock), record (Keys::record)
-- ARGV: owner, request
-- Returns: {left} | {was_granted, token, lease left ms}
-- Effects: none
local lock, record = KEYS[1], KEYS[2]
local owner, request = ARGV[1], ARGV[2]
-- @include lib/last_grant: read_last_grant, is_granted

local held = redis.call('HGET', lock, owner)
local last_grant = read_last_grant(record)
if not is_granted(held, last_grant, owner, request) then return { 'left' } end
return { 'was_granted', tonumber(last_grant[3]), math.max(0, redis.call('PTTL', lock)) }
