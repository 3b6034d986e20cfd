-- The life of a server: its past, as far as it can be known. A server that restarted empty or with an old file, was flushed, or was
-- promoted has a new life, and may have forgotten holds. For one grace it grants nothing: longer than a client believes in a hold
-- without a renewal. In the grace holders reclaim their forgotten holds, and waiters take their old places.
--
-- The life's key is a hash without an end; in a cluster there is one for each hash slot. It is gone after a flush and after a
-- restart without data; its field `replid` differs from the server's own after any other restart, and after a promotion. `epoch`
-- is the configuration epoch under which a quorum named the server (in a cluster, as the node that keeps the slot), or 0. A higher
-- epoch is a new life, too: meanwhile another server may have been the master, without this server's knowledge. `until` is the end of
-- the grace, `grace` its length, both in milliseconds.
--
-- `voters` are sentinels that have named the server in this life: how many are a majority, and a word for each run of a process.
-- A sentinel that lost its file may have named another server meanwhile, under an older epoch, and name this server again. So a
-- life goes on only if a majority of the answers comes from known runs: these runs named no other server in between, and every
-- majority has a known run. A new run is added once it names the server together with a majority of the known runs.
--
-- This stands in front of a script whose last KEY is the life's key, and whose last arguments are `kept`, the grace, the epoch, and the
-- voters, or nothing. For other clients `local grace_left, kept = nil, 0` stands there instead.

-- @part
-- @include lib/clock: now
-- @include lib/format: newer

-- `kept`: for how long (ms) the server keeps a hold whose holder no longer believes in it. A server that was deposed may still
-- be trusted by a client, while the holder reclaims its lock at the new one.
local grace_left, kept, grace_id, life_began

-- How many of a majority are missing among the known voters, and the voters that are not known.
local function compare_voters(known, voters)
  local majority, runs = string.match(voters, '^(%d+)(.*)$')
  local missing, added = tonumber(majority), ''
  for run in string.gmatch(runs, ' %w+') do
    if string.find(known, run, 1, true) then missing = missing - 1 else added = added .. run end
  end
  return missing, added
end

-- The present voters, and earlier ones as far as there is room: for eight, of 13 characters each.
local function renewed_voters(known, voters)
  local function is_present(run) return string.find(voters, run, 1, true) and '' end
  local others = string.match(string.gsub(known, ' (%w+)', is_present), ' .*$') or ''
  return voters .. string.sub(others, 1, 8 * 13)
end

-- Returns an error if the server and the client do not fit together.
local function read_life()
  local life, voters, epoch, grace = table.remove(KEYS), table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  kept = tonumber(table.remove(ARGV))
  local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  local known = redis.call('HMGET', life, 'replid', 'until', 'grace', 'epoch', 'voters')
  local is_newer = newer(known[1])
  if is_newer then return is_newer end
  if known[3] and known[3] ~= grace then
    local both = 'OTHERGRACE the server has a grace of %s ms, and this client one of %s ms'
    return redis.error_reply(string.format(both, known[3], grace))
  end
  local newer = tonumber(epoch) - (tonumber(known[4]) or 0)
  -- No voter is known after an operator has begun the life.
  local missing, added, are_known = 0, '', (known[5] or '') ~= ''
  if are_known and voters ~= '' and string.find(known[5], voters, 1, true) ~= 1 then
    missing, added = compare_voters(known[5], voters)
  end
  -- With a majority of others, the sentinels were set up anew, and count from there.
  if newer < 0 and missing <= 0 then
    return redis.error_reply('OLDEPOCH the server has the epoch ' .. known[4] .. ', and this client ' .. epoch)
  end
  local left = (tonumber(known[2]) or math.huge) - now
  local saved = 0
  -- More than a grace is left if the clock was set back.
  if known[1] ~= replid or newer > 0 or missing > 0 or left > tonumber(grace) then
    left = tonumber(grace)
    -- A full server refuses a write that needs room, but only as the first write of a script; then the grace would begin anew with
    -- each request, until there is room. So a write that needs no room goes first. (There is no such field.)
    redis.pcall('HDEL', life, '')
    saved = redis.pcall('HSET', life, 'replid', replid, 'until', string.format('%.0f', now + left), 'grace', grace,
      'epoch', epoch, unpack(voters ~= '' and { 'voters', voters } or {}))
  elseif added ~= '' or voters ~= '' and not are_known then
    saved = redis.pcall('HSET', life, 'voters', renewed_voters(known[5] or '', voters))
  end
  if type(saved) == 'table' and not string.find(saved.err, 'OOM', 1, true) then return saved end
  -- A grace is named by its end.
  if left > 0 then
    grace_left, grace_id, life_began = left, string.format('%.0f', now + left), now + left - grace
  end
end

local other_life = read_life()
if other_life then return other_life end

-- The reply to a question that a hold of the former life would answer.
local function in_grace()
  return redis.error_reply(string.format('INGRACE for %.0f ms more', grace_left))
end

-- @part
-- What is ended in a grace stays ended: a reclaim that comes later is late.
--
-- The record's field `ended` is `<last> <token> …`: the holds with tokens up to the first number are over, and so are the holds
-- with the listed tokens. The end of a hold of all units replaces the list: all earlier holds are over. Otherwise the list keeps
-- the last tokens. (A hold whose token fell out could be reclaimed again, for a lease.)
local ENDED_KEPT = 100
local function read_ended(record)
  local last, tokens = string.match(redis.call('HGET', record, 'ended') or '', '^(%d+)(.*)$')
  return tonumber(last) or 0, tokens or ''
end

local function has_ended(record, token)
  local last, tokens = read_ended(record)
  return token <= last or string.find(tokens .. ' ', string.format(' %.0f ', token), 1, true) ~= nil
end

-- Notes that the hold of a token has ended; with `all`, the holds of all smaller tokens too. The next token is greater, even if
-- the clock is behind.
local function end_in_grace(record, queue, plan, token, all)
  local last, tokens = read_ended(record)
  last = all and math.max(last, token) or last
  tokens = all and tokens or string.format('%s %.0f', tokens, token)
  if select(2, string.gsub(tokens, ' ', '')) > ENDED_KEPT then tokens = string.match(tokens, '^ %d+(.*)$') end
  queue.last = math.max(queue.last, token)
  plan.places = { 'ended', string.format('%.0f%s', last, tokens) }
end
