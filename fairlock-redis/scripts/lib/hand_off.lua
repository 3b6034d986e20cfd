-- The line of the hand-off: a sorted set of members by ticket, and a hash of their places.
--
-- A member is one request: owner, a colon, the request in hex. Its place is `<deadline> <lease> <since> <label>`. The
-- deadline is on the line clock, which follows the server's, but advances by at most half a place's life between two
-- scripts: a server that was stopped, or a line nobody touched, does not make every live waiter an overdue one. Who is
-- absent (overdue, or nobody hears for him) is parked behind all others and keeps his ticket: he is back as soon as he
-- speaks. Tickets and tokens come from one sequence, so both grow, also when the keys are gone.

local PARKED = 4503599627370496
local SWEEP_AFTER = 60000
local MOST_LOOKS = 256
local KEEP_SEQUENCE_FOR = 86400000

-- What one script knows of the line. Reads everything that can be of another type; writes nothing.
local function open_line(lock, line, places, sequence, ttl)
  local known = redis.call('HMGET', sequence, 'token', 'pulse', 'clock', 'ttl')
  redis.call('HLEN', places)
  local ttl_known = tonumber(ttl) or tonumber(known[4]) or 5000
  local passed = math.max(0, now - (tonumber(known[2]) or now))
  return {
    lock = lock, line = line, places = places, sequence = sequence, ttl = ttl_known,
    last = tonumber(known[1]) or 0,
    clock = (tonumber(known[3]) or now) + math.min(passed, math.floor(ttl_known / 2)),
    length = redis.call('ZCARD', line), speaking = {},
  }
end

local function next_number(at)
  at.last = math.max(at.last + 1, now_micros)
  return at.last
end

-- Remembers the sequence and the line clock. Called after another write, so that a full server can't refuse it.
local function close_line(at)
  redis.call('HSET', at.sequence, 'token', whole(at.last), 'pulse', whole(now), 'clock', whole(at.clock),
    'ttl', whole(at.ttl))
  if redis.call('PTTL', at.sequence) < KEEP_SEQUENCE_FOR / 2 then
    redis.call('PEXPIRE', at.sequence, KEEP_SEQUENCE_FOR)
  end
end

local function parts_of(member)
  return string.match(member, '^(.*):([^:]*):([^:]*)$')
end

local function place_of(at, member)
  local text = redis.call('HGET', at.places, member)
  if not text then return nil end
  local deadline, lease, since, label = string.match(text, '^(%d+) (%d+) (%d+) (.*)$')
  if not deadline then return nil end
  return { deadline = tonumber(deadline), lease = tonumber(lease), since = since, label = label }
end

-- The owner has been heard: his place lives on, and is where its ticket says.
local function speak(at, member, ticket, lease, since, label)
  if ticket >= PARKED then redis.call('ZADD', at.line, whole(ticket - PARKED), member) end
  redis.call('HSET', at.places, member,
    whole(at.clock + at.ttl) .. ' ' .. lease .. ' ' .. since .. ' ' .. label)
  at.speaking[member] = true
end

local function keep_line(at)
  local keep = math.max(120000, 12 * at.ttl)
  redis.call('PEXPIRE', at.line, keep)
  redis.call('PEXPIRE', at.places, keep)
end

local function keep_line_if_half_is_over(at)
  if redis.call('PTTL', at.line) < math.max(120000, 12 * at.ttl) / 2 then keep_line(at) end
end

-- One who has a place already. The first write is one that a full server takes.
local function speak_again(at, member, ticket, lease, label)
  local place = place_of(at, member)
  keep_line(at)
  speak(at, member, ticket, lease, place and place.since or whole(now), label)
end

-- A server that is not a cluster knows who listens. Asked once a client; an error counts as "he does".
local function is_heard(at, member)
  if at.speaking[member] or at.knows ~= '1' then return true end
  local client = parts_of(member)
  if not client then return false end
  at.heard = at.heard or {}
  if at.heard[client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', at.client_prefix .. client)
    at.heard[client] = answer.err ~= nil or tonumber(answer[2]) ~= 0
  end
  return at.heard[client]
end

local function leave(at, member)
  redis.call('ZREM', at.line, member)
  redis.call('HDEL', at.places, member)
end

-- Who is the first in line that is present? The absent ahead of him are parked, entries without a place removed. If
-- there are too many of those for one call, `more` says that somebody may be behind them: then nobody may pass the line.
local function first_present(at)
  for _ = 1, MOST_LOOKS do
    local entry = redis.call('ZRANGE', at.line, 0, 0, 'WITHSCORES')
    local member, ticket = entry[1], tonumber(entry[2])
    if not member or ticket >= PARKED then return nil end
    local place = place_of(at, member)
    if not place then
      leave(at, member)
    elseif at.speaking[member] or (place.deadline > at.clock and is_heard(at, member)) then
      return member, place
    else
      redis.call('ZADD', at.line, whole(ticket + PARKED), member)
    end
  end
  at.more = true
end

-- Makes the member the holder. The lock does not exist, or is this owner's. The first PEXPIRE changes nothing as a
-- rule: if the user may not use it, the script ends there, and not with a hash that stays for ever.
local function grant_to(at, member, lease, label)
  local client, number, request = parts_of(member)
  local owner = client .. ':' .. number
  local token = next_number(at)
  redis.call('PEXPIRE', at.lock, whole(lease))
  redis.call('HSET', at.lock, owner, 1, 'fairlock', member .. ' ' .. whole(token))
  redis.call('PEXPIRE', at.lock, whole(lease))
  redis.call('HSET', at.sequence, 'owner', owner, 'request', request, 'since', whole(now), 'label', label)
  return token
end

-- The lock is free: the first who is present gets it, and is told, unless he is the one who asks. Returns who got it.
local function hand_on(at)
  if at.length == 0 or redis.call('EXISTS', at.lock) == 1 then return nil end
  local member, place = first_present(at)
  if not member then return nil end
  local lease = math.max(1, math.min(place.deadline - at.clock, place.lease))
  local token = grant_to(at, member, lease, place.label)
  leave(at, member)
  keep_line_if_half_is_over(at)
  at.push = not at.speaking[member] and { member = member, token = token }
  return member, token, lease
end

-- Places whose owners have been silent for a minute more are removed, a few a call.
local function sweep(at)
  if at.length == 0 then return end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', at.line, PARKED, '+inf', 'LIMIT', 0, 3)) do
    local place = place_of(at, member)
    if not place or place.deadline + SWEEP_AFTER < at.clock then
      leave(at, member)
    end
  end
end

-- Tells the new holder, after every write.
local function push(at, name)
  if not at.push then return end
  local client, number, request = parts_of(at.push.member)
  local message = 'granted ' .. number .. ' ' .. request .. ' ' .. whole(at.push.token) .. ' ' .. name
  redis.pcall('PUBLISH', at.client_prefix .. client, message)
end

-- When the first in line should look without being told: when the hold is over. Nobody else needs to.
local function look_again(at, rank)
  if rank > 0 then return -1 end
  local left = redis.call('PTTL', at.lock)
  if left == -2 then return 0 end
  return left < 0 and -1 or left + 1
end

-- What is left of a hold's lease. One that somebody has made endless (PERSIST) gets an end again.
local function left_of(lock, lease)
  local left = redis.call('PTTL', lock)
  if left >= 0 then return left end
  redis.call('PEXPIRE', lock, lease)
  return tonumber(lease)
end

-- What the field `fairlock` says of the hold: member and token.
local function hold_of(field)
  if not field then return nil end
  return string.match(field, '^(.*) (%d+)$')
end
