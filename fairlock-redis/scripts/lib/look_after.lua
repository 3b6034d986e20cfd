-- When a waiter looks by itself.

-- A waiter for a lock of several units looks at the end of a hold no more often (ms).
local LOOK_EVERY = 50

-- In how many ms a waiter looks without a push; `left`: how long the hold that ends first lasts. -1: never, since its next heartbeat
-- comes before that hold ends. The first in the queue always looks. Others look since all waiters ahead may have died with the holder.
local function look_after(left, rank, ttl, is_of_one)
  if not left or left < 0 or rank > 0 and 3 * left >= ttl then return -1 end
  return is_of_one and left + 1 or math.max(LOOK_EVERY, left + 1)
end
