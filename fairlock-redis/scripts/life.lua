-- Reads the life of the server; for an operator, ends its grace.
-- KEYS: life (keys.rs, LIFE)
-- ARGV: the epoch of the client (see lib/life); to end the grace, how long it is (ms) if the server has none yet
-- Returns: {what is left of the grace (ms), or -1 if the first request of a durable client begins it; its length, or nothing}
-- Effects: none; or the life, whose grace is over
local life = KEYS[1]
local epoch, grace = ARGV[1], ARGV[2]

local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local known = redis.call('HMGET', life, 'replid', 'until', 'grace', 'epoch', 'voters')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local is_known = known[1] == replid and tonumber(epoch) <= (tonumber(known[4]) or 0)
local left = is_known and math.max(0, (tonumber(known[2]) or now) - now) or -1
if grace then
  redis.call('HSET', life, 'replid', replid, 'until', string.format('%.0f', now), 'grace', known[3] or grace,
    'epoch', epoch, unpack(known[5] and { 'voters', '' } or {}))
end
return { left, known[3] }
