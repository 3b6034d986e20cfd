-- Takes the lock if it is free.
-- KEYS: lock (Keys::lock), record (Keys::record)
-- ARGV: owner, request, lease (ms), label, until when it may begin (see lib/clock)
-- Returns: {granted, token, lease ms} | {busy, lease left ms or -1}
-- Effects: hash and token with a lease
local lock, record = KEYS[1], KEYS[2]
local owner, request, lease, label, begin_by = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- @include lib/clock: late
-- @include lib/last_grant: read_last_grant, granted_before
-- @include lib/grant: grant_to_owner
-- @include lib/owner: read_holder, not_exclusive

local last_grant = read_last_grant(record)
local holder = read_holder(lock, last_grant)
local granted = granted_before(lock, holder and holder[1] == owner, last_grant, owner, request, lease)
if granted then return granted end
if not holder then
  if late(begin_by) then return late(begin_by) end
  -- It changes nothing, but a full server refuses it: then no newcomer gets a lock, and nothing has been written.
  redis.call('ZADD', lock, 'XX', 0, '-')
  return grant_to_owner(lock, record, last_grant, owner, request, lease, label)
end
-- Also if this owner holds it under another request, see lib/grant.
return not_exclusive(holder) or { 'busy', redis.call('PTTL', lock) }
