-- What a hold is made of: the owner's field in the lock's hash, and the description of the grant.

-- Does this very request hold the lock? A description that is missing (evicted, deleted) is no proof against it.
local function is_held_by(held, described, owner, request)
  if not held then return false end
  if not described[1] then return true end
  return described[1] == owner and described[2] == request
end

-- Is it this very hold, by request and token?
local function is_hold(held, described, owner, request, token)
  return is_held_by(held, described, owner, request) and (described[3] or token) == token
end

-- Tells a holder that is one of ours that his hold was taken away.
local function tell_taken(holder, described, client_prefix, name)
  local client, number = string.match(holder, '^(.*):(.-)$')
  if client and described[1] == holder then
    redis.pcall('PUBLISH', client_prefix .. client, 'taken ' .. number .. ' ' .. described[3] .. ' ' .. name)
  end
end

-- Reads the description as {owner, request, token}.
local function described_in(token_key)
  return redis.call('HMGET', token_key, 'owner', 'request', 'token')
end

-- Makes `owner` the holder and returns his token. PEXPIRE is tried first, on a key where it harms nobody: if the user
-- may not use it, the script ends there, and not with a hash that stays for ever.
local function grant(lock, token_key, last, owner, request, lease, label)
  local token = math.max((exact(last) or 0) + 1, now_micros)
  local keep = whole(math.max(sequence_lasts(token), 2 * tonumber(lease)))
  local is_new = redis.call('PEXPIRE', token_key, keep) == 0
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  redis.call('HSET', token_key, 'token', whole(token), 'owner', owner, 'request', request,
    'since', whole(now), 'label', label)
  if is_new then redis.call('PEXPIRE', token_key, keep) end
  return token
end
