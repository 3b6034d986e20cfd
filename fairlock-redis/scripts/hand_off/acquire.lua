-- uses: lib/clock lib/kind lib/owner lib/places lib/hand_off
-- Takes the lock, or a place in the line; hands the lock on if it is free.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: member, lease (ms), ttl of the place (ms), options (see lib/places), label, until when it may begin (see lib/clock), and
--   the ticket that the request was told, if any
-- Returns: {granted, token, lease left ms, 2 if a look at Redisson's line was refused, else nothing}
--   | {busy, ms or -1, 1 if there is more of the line to scan}
--   | {queued, rank, recheck in ms or -1, ticket, last number, whether Redisson's line exists (2: the user may not look)}
-- Effects: hash with a lease; or ticket and place, with a time to live; sequence; a push to a new holder
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, lease, ttl, options, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local begin_by, told_ticket = ARGV[6], ARGV[7]
local call, pcall = redis.call, redis.pcall
local refused -- see `look` in lib/hand_off

-- The fast part: the common cases, before any function is made. What is not plain is left to the general part below: a
-- repeat, an attempt after its end, a number ahead of the clock, a lock that is free although there is a line, a marked state,
-- a command that is refused. What the fast part has written by then it has taken back, so the general part runs as if it were
-- alone, and it is the one that says what is wrong. Numbers are passed as text: Redis needs long to format them.
local exist = call('EXISTS', lock, line, places)
--life: if grace_left then exist = 2 end
if exist == 0 and not told_ticket then
  local saved = call('HGET', sequence, 'state')
  local time = call('TIME')
  local number = time[1] .. string.sub('00000' .. time[2], -6)
  local last, turn, rest
  if saved then
    last, turn, rest = string.match(saved, '^(%d+) (%u)( .*)$')
  else
    last, turn, rest = '0000000000000000', 'A', ' 0 ' .. string.sub(number, 1, -4) .. ' 0 5000 0'
  end
  if turn == 'Q' then
    -- A turn of Redisson's line may be due.
    local queue = 'redisson_lock_queue:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')
    local first = string.find(options, 'r', 1, true) and pcall('LINDEX', queue, '0')
    refused = type(first) == 'table' and 2 or nil
    if first and not refused then last = nil end
    turn = 'A'
  end
  if last and last < number and #last == #number and number <= begin_by then
    turn = string.char(string.byte(turn) + 1)
    -- The first write: a full server refuses it, or none.
    call('HSET', lock, 'fairlock', member .. ' ' .. number .. ' 1 ' .. (turn == 'Q' and '+' or '-') .. label)
    if type(pcall('PEXPIRE', lock, lease)) == 'number' then
      --life: if kept > 0 then call('PEXPIRE', lock, lease + kept) end
      call('HSET', sequence, 'state', number .. ' ' .. turn .. rest)
      -- Not at each grant: tokens grow even if it ends, since the clock is ahead of every number that was drawn.
      if not saved or turn == 'Q' then call('PEXPIRE', sequence, '86400000') end
      return { 'granted', tonumber(number), tonumber(lease), refused }
    end
    if type(pcall('HDEL', lock, 'fairlock')) == 'table' then call('DEL', lock) end
  end
elseif exist ~= 2 then
  local hold = call('HGET', lock, 'fairlock')
  local is_repeat = hold and string.find(hold, member, 1, true) == 1
  if not hold or is_repeat or not string.find(hold, '^.- %d+ %d+ [-+!]') then
    -- Or a lock of Redisson's, or something that is no lock.
  elseif not string.find(options, 'w', 1, true) then
    if exist == 1 or not call('ZSCORE', line, member) then return { 'busy', call('PTTL', lock), 0 } end
  elseif not told_ticket and not string.find(options, 'd', 1, true) then
    local last, grants, pulse, lag, least_ttl =
      string.match(call('HGET', sequence, 'state') or '', '^(%d+)( %u %d+ )(%d+) (%d+) (%d+) %d+$')
    if least_ttl == ttl then
      local left, time = call('PTTL', lock), call('TIME')
      local number = time[1] .. string.sub('00000' .. time[2], -6)
      local since = string.sub(number, 1, -4)
      local now, life = tonumber(since), tonumber(ttl)
      local passed = now - pulse
      -- The line clock advances by at most half of the least TTL.
      if passed > life / 2 then lag = string.format('%.0f', lag + passed - math.floor(life / 2)) end
      local clock = now - lag
      local deadline = string.format('%.0f', clock + life)
      -- The second write must not find a key of another type.
      local is_hash = exist == 1 or type(pcall('HLEN', places)) == 'number'
      if last < number and #last == #number and number <= begin_by and passed >= 0 and clock > 0
        -- The first write. If a full server refuses it, or the member is in line already, the general part answers.
        and is_hash and pcall('ZADD', line, 'NX', number, member) == 1 then
        local done = pcall('HSET', places, member, deadline .. ' ' .. lease .. ' ' .. number .. ' ' .. label)
        local rank = type(done) == 'number' and pcall('ZRANK', line, member)
        if exist == 1 and type(rank) == 'number' then
          local keep = math.max(86400000, 12 * life)
          done = pcall('PEXPIRE', line, keep)
          if type(done) == 'number' then call('PEXPIRE', places, keep) end
        end
        if type(rank) == 'number' and type(done) == 'number' then
          call('HSET', sequence, 'state', number .. grants .. since .. ' ' .. lag .. ' ' .. ttl .. ' ' .. deadline)
          -- Only for a warning, so at every fourth turn.
          local redisson_line = 0
          if string.find(grants, '^ [EIMQ]') and string.find(options, 'r', 1, true) then
            local queue = 'redisson_lock_queue:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')
            local there = pcall('EXISTS', queue)
            redisson_line = type(there) == 'number' and there or 2
          end
          -- See `recheck_in`.
          if left < 0 or rank > 0 and 3 * left >= life then left = -2 end
          local ticket = tonumber(number)
          return { 'queued', rank, left + 1, ticket, ticket, redisson_line }
        end
        pcall('ZREM', line, member)
        pcall('HDEL', places, member)
      end
    end
  end
end

-- lib

local holder, token = parse_hold(redis.call('HGET', lock, 'fairlock'))
local state = open_line(lock, line, places, sequence, ttl, options)
state.refused = refused
local ticket = state.length > 0 and tonumber(redis.call('ZSCORE', line, member))

--life: if holder == member and grace_left then return in_grace() end
-- A repeat, whose first answer was lost; or the push was lost.
if holder == member then return { 'granted', tonumber(token), lease_left(lock, lease) } end
-- A hold of this owner under another request does not matter: which of the two requests is the late one can't be known
-- here, so that hold ends by its own release, or with its lease.
local left = redis.call('PTTL', lock)
local free = left == -2
local other = not holder and not free and not_exclusive(read_holder(lock, {}))
if other then return other end
if not free and not ticket and not state.waits then return { 'busy', left, 0 } end
if not ticket and late(begin_by) then return late(begin_by) end

local restored = not ticket and state.waits and may_restore(state, member, tonumber(told_ticket))
probe_rights(state, restored and 'restored' or ticket and 'waiter' or free and 'newcomer' or 'tail')
if restored then
  ticket = restore_place(state, member, tonumber(told_ticket), lease, label)
elseif ticket then
  ticket = refresh_place(state, member, ticket, lease, label)
end
if ticket then keep_line(state) end

if free then
  local winner, granted, lasts
  if state.length > 0 then
    save(state)
    winner, granted, lasts = hand_on(state)
  else
    reserve_for_redisson(state)
  end
  if winner == member then return { 'granted', granted, lasts, state.refused } end
  local rests = state.length > 0 and is_resting(state)
  --life: rests = rests or grace_left
  if not ticket and not winner and not state.more_to_scan and not state.is_reserved and not rests then
    return { 'granted', grant_to(state, member, lease, label), tonumber(lease), state.refused }
  end
end

if not state.waits then
  if ticket then
    remove_place(state, member)
    save(state)
  end
  push(state)
  left = redis.call('PTTL', lock)
  return { 'busy', left == -2 and (state.is_reserved and state.reserved_until - now or 0) or left, more_to_scan(state) }
end
if not ticket then
  add_place(state, member, next_number(state), lease, label)
  keep_line(state)
end
save(state)
if ticket or free then sweep(state) end
push(state)
local rank = state.length == 0 and 0 or redis.call('ZRANK', line, member)
local redisson_line = check_redisson(state, free or holder)
return { 'queued', rank, recheck_in(state, rank), ticket or state.last, state.last, redisson_line }
