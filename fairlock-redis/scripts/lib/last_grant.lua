-- A hold of the disciplines Redisson and plain: the owner's field in the lock's hash, and the record of the last grant beside it.
--
-- A request never takes over its owner's hold under another request: which of the two is the late one can't be known, and the
-- late one's lease may be shorter than what the holder believes. Nor one whose record is missing or names another owner: it can't be
-- known whose it is. It ends by its own release, or with its lease.

-- Reads the record of the last grant as {owner, request, token, label}, with the state of the sequence.
local function read_last_grant(record)
  local saved = redis.call('HMGET', record, 'grant', 'state')
  local last_grant = { string.match(saved[1] or '', '^(.-):([^: ]*) (%d+) (.*)$') }
  last_grant.state = saved[2] or ''
  return last_grant
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

-- Answers the repeat of a granted request, whose first answer was lost, by the rest of its lease: a late repeat must neither
-- shorten nor prolong it. Only a hold that was made endless by hand (PERSIST) gets an end again. Nil if the request does not hold the
-- lock.
local function granted_before(lock, held, last_grant, owner, request, lease)
  if not is_granted(held, last_grant, owner, request) then return nil end
  local left = redis.call('PTTL', lock)
  if left < 0 then redis.call('PEXPIRE', lock, lease) end
  return { 'granted', tonumber(last_grant[3]), left < 0 and tonumber(lease) or math.min(left, tonumber(lease)) }
end

-- Tells the former holder that it lost the lock, if it is a client of fairlock.
local function notify_taken(holder, name)
  local client, number = string.match(holder[1], '^(.*):(.-)$')
  if client and holder[3] then
    redis.pcall('PUBLISH', 'fairlock:' .. client, 'taken ' .. number .. ' ' .. holder[3] .. ' ' .. name)
  end
end
