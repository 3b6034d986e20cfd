-- A hold: the owner's field in the lock's hash, and the record of the last grant beside it.

-- Reads the record of the last grant as {owner, request, token}.
local function read_last_grant(token_key)
  return redis.call('HMGET', token_key, 'owner', 'request', 'token')
end

-- Whether the owner holds the lock by this very request and token. A record that is missing (evicted, deleted) proves
-- nothing against it.
local function is_hold(held, last_grant, owner, request, token)
  local is_same = not last_grant[1] or last_grant[1] == owner and last_grant[2] == request
  return held and is_same and (last_grant[3] or token) == token
end

-- Whether this very request was granted the lock and still holds it.
local function is_granted(held, last_grant, owner, request)
  return held and last_grant[1] == owner and last_grant[2] == request
end

-- Answers the repeat of a granted request, whose first answer was lost: its lease starts again. Nil if it does not hold
-- the lock.
local function granted_before(lock, held, last_grant, owner, request, lease)
  if not is_granted(held, last_grant, owner, request) then return nil end
  redis.call('PEXPIRE', lock, lease)
  return { 'granted', tonumber(last_grant[3]), tonumber(lease) }
end

-- Makes `owner` the holder. PEXPIRE comes first, on the other key: if the user may not use it, the script ends here, and
-- leaves no hash without an end.
local function grant(lock, token_key, last, owner, request, lease, label)
  local token = math.max((parse_int(last) or 0) + 1, now_micros)
  local keep = format_int(math.max(sequence_ttl(token), 2 * tonumber(lease)))
  local is_new = redis.call('PEXPIRE', token_key, keep) == 0
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', token_key, 'token', format_int(token), 'owner', owner, 'request', request,
    'since', format_int(now), 'label', label)
  if is_new then redis.call('PEXPIRE', token_key, keep) end
  return { 'granted', token, tonumber(lease) }
end

-- Tells the former holder, if it is one of ours, that it lost the lock.
local function notify_taken(holder, last_grant, client_prefix, name)
  local client, number = string.match(holder, '^(.*):(.-)$')
  if client and last_grant[1] == holder then
    redis.pcall('PUBLISH', client_prefix .. client, 'taken ' .. number .. ' ' .. last_grant[3] .. ' ' .. name)
  end
end
