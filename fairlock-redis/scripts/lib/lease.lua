-- The lease of a request that was granted the lock before.
-- @include lib/hold: renew

-- The rest of a hold's lease, for its holder that asks again. It is not raised: a late repeat must neither shorten nor prolong it.
-- Only one that was made endless by hand (PERSIST) gets an end again, and one that is only kept.
local function lease_left(hold, member, lease)
  if hold.left >= kept then return hold.left - kept end
  renew(lock, ends, member, hold.token, nil, lease + kept)
  return lease
end
