-- uses: lib/grant lib/kind lib/owner
-- Takes the lock from its holder.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: channel
-- Returns: {taken} | {not_held}
-- Effects: hash deleted; message `0`; the former holder is told
local lock, token_key = KEYS[1], KEYS[2]
local channel = ARGV[1]

local holder = read_holder(lock, read_last_grant(token_key))
if not holder then return { 'not_held' } end
local refused = not_exclusive(holder)
if refused then return refused end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, '0')
notify_taken(holder, lock)
return { 'taken' }
