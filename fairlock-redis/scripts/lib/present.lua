-- Which waiters count.

-- How the name of a client's channel begins.
local CLIENT_PREFIX = 'fairlock:'

-- Whether the waiter was heard within its place's time, and a push would reach it. A server that is not a cluster (`s`) knows its
-- subscribers; each client is looked up once (`known`). After a fault some have not subscribed again yet: `u<time>` says that a waiter
-- with a smaller ticket counts as subscribed. A client that is deaf says so: it lives, and finds a grant by its own heartbeat.
local function is_present(place, clock, known)
  if place.deadline <= clock then return false end
  if place.is_deaf or not string.find(options, 's', 1, true) then return true end
  if known[place.client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', CLIENT_PREFIX .. place.client)
    known[place.client] = answer.err ~= nil or tonumber(answer[2]) ~= 0
  end
  return known[place.client] or tonumber(place.ticket) < tonumber(string.match(options, 'u(%d+)') or 0)
end
