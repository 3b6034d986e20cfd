-- uses: lib/grant lib/owner
-- Looks whether the lock is free, for the waiters of one client.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: for each waiter: owner, request, lease (ms)
-- Returns: a row a waiter: {granted, token, lease ms} | {waiting, 0, look again in ms or -1, 0}
-- Effects: the lease of a waiter who holds the lock is renewed
local lock, token_key = KEYS[1], KEYS[2]
local waiters = {}
for at = 1, #ARGV, 3 do
  local owner, request, lease = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  waiters[#waiters + 1] = { owner = owner, request = request, lease = lease }
end

local holder = owner_in(lock)
local described = described_in(token_key)
local left = redis.call('PTTL', lock)
local look_in = (left == -2 and 0) or (left == -1 and -1) or left + 1
local rows = {}
for at, waiter in ipairs(waiters) do
  if holder == waiter.owner and described[1] and is_held_by(true, described, waiter.owner, waiter.request) then
    redis.call('PEXPIRE', lock, waiter.lease)
    rows[at] = { 'granted', tonumber(described[3]), tonumber(waiter.lease) }
  else
    rows[at] = { 'waiting', 0, look_in, 0 }
  end
end
return rows
