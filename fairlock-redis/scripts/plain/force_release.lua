-- uses: lib/grant lib/owner
-- Takes the lock from whoever holds it.
-- KEYS: lock (Keys::lock), token (Keys::token)
-- ARGV: channel, prefix of the clients' channels, name of the lock
-- Returns: {taken} | {not_held}
-- Effects: hash deleted; message `0`; the former holder is told
local lock, token_key = KEYS[1], KEYS[2]
local channel, client_prefix, name = ARGV[1], ARGV[2], ARGV[3]

local holder = owner_in(lock)
local described = described_in(token_key)
if not holder then return { 'not_held' } end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, '0')
tell_taken(holder, described, client_prefix, name)
return { 'taken' }
