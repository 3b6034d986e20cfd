-- Case: when a later version has written the lock or its record, this version refuses, and leaves them as they are.
local is_newer = newer(redis.call('HGET', lock, 'mode')) or newer(redis.call('HGET', record, 'last'))
if is_newer then return is_newer end
