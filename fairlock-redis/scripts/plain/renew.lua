-- Looks whether the lock is free, for the waiters of one client.
-- KEYS: lock (Keys::lock), record (Keys::record)
-- ARGV: for each waiter: owner, request, lease (ms)
-- Returns: a row for each waiter: {granted, token, lease ms} | {waiting, 0, recheck in ms or -1, 0}
-- Effects: none, but an endless hold of a waiter gets a lease
local lock, record = KEYS[1], KEYS[2]
-- @include lib/last_grant: read_last_grant, granted_before
-- @include lib/owner: read_holder, not_exclusive
local waiters = {}
for index = 1, #ARGV, 3 do
  local owner, request, lease = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  waiters[#waiters + 1] = { owner = owner, request = request, lease = lease }
end

local last_grant = read_last_grant(record)
local holder = read_holder(lock, last_grant) or {}
local refused = not_exclusive(holder)
if refused then return refused end
local left = redis.call('PTTL', lock)
local recheck_in = (left == -2 and 0) or (left == -1 and -1) or left + 1
local rows = {}
for index, waiter in ipairs(waiters) do
  local owner = waiter.owner
  rows[index] = granted_before(lock, holder[1] == owner, last_grant, owner, waiter.request, waiter.lease)
    or { 'waiting', 0, recheck_in, 0 }
end
return rows
