-- uses: lib/grant lib/owner
-- Takes the lock from its holder.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: channel, prefix of the clients' channels, name of the lock
-- Returns: {taken} | {not_held}
-- Effects: hash deleted; message `0`; the former holder is told
local lock, token_key = KEYS[1], KEYS[2]
local channel, client_prefix, name = ARGV[1], ARGV[2], ARGV[3]

local holder = owner_in(lock)
local last_grant = read_last_grant(token_key)
if not holder then return { 'not_held' } end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, '0')
notify_taken(holder, last_grant, client_prefix, name)
return { 'taken' }
