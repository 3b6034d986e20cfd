-- Redisson's channel for a lock. A message says that the lock may be free: to Redisson's waiters, and to ours of plain locks.

local function wake_plain()
  publish('redisson_lock__channel:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'), '0')
end
