-- The lease of a request that was granted the lock before.
-- @include lib/hold: renew

-- The rest of a hold's lease, for a holder that asks again. The lease is not raised: a late repeat must neither shorten nor
-- prolong it. Two exceptions: a hold that was made endless by hand (PERSIST), and a kept hold, get a new end.
local function lease_left(hold, member, lease)
  if hold.left >= kept then return hold.left - kept end
  renew(lock, ends, member, hold.token, nil, lease + kept)
  return lease
end
