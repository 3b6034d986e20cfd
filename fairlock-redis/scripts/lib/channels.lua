-- Redisson's channel for a lock, on which its own waiters and ours of plain locks hear that it may be free.

local function wake_plain()
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'), '0')
end
