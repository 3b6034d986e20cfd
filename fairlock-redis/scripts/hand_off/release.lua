-- uses: lib/clock lib/places lib/hand_off
-- Hands the lock on to the next in line.
-- KEYS: lock (Keys::lock), line (Keys::line), places (Keys::places), sequence (Keys::token)
-- ARGV: the hold's member, token and a space, options (see lib/places)
-- Returns: {released, 1 if there is more of the line to scan, 2 if a look at Redisson's line was refused} | {not_held, as before}
-- Effects: hash deleted, or the next holder's; sequence; a push to a new holder
local lock, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local named, options = ARGV[1], ARGV[2]
local call, pcall = redis.call, redis.pcall
local refused -- see `look` in lib/hand_off

local hold = call('HGET', lock, 'fairlock')
local is_holder = hold and string.find(hold, named, 1, true) == 1

-- The fast part, as in `acquire`. It leaves to the general part: a hold that counts re-entries or is marked with `!`, a turn of
-- Redisson's line, and a first waiter that is deaf, parked, overdue or not subscribed.
local mark = is_holder and string.sub(hold, #named + 1, #named + 3)
--life: if grace_left then mark = nil end
if mark == '1 +' then
  local queue = 'redisson_lock_queue:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')
  local first = string.find(options, 'r', 1, true) and pcall('LINDEX', queue, '0')
  refused = type(first) == 'table' and 2 or nil
  mark = first and not refused and mark or '1 -'
end
if mark == '1 -' then
  local next = call('ZRANGE', line, '0', '0')[1]
  if not next then
    call('DEL', lock)
    local braced = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
    pcall('PUBLISH', 'redisson_lock__channel:' .. braced, '0')
    return { 'released', 0, refused }
  end
  local client, owner, request = string.match(next, '^([^:]*):([^:]*):([^:]*)$')
  local place = client and call('HGET', places, next)
  -- A letter would follow the ticket of a place that is parked or deaf.
  local deadline, lease, ticket, label = string.match(place or '', '^(%d+) (%d+) (%d+) (.*)$')
  local last, turn, served, pulse, lag, times, least_ttl = string.match(label and call('HGET', sequence, 'state') or '',
    '^(%d+) (%u) (%d+) (%d+) (%d+)( (%d+) %d+)$')
  if last then
    local time = call('TIME')
    local number = time[1] .. string.sub('00000' .. time[2], -6)
    local since = string.sub(number, 1, -4)
    local now, half = tonumber(since), math.floor(least_ttl / 2)
    local passed = now - pulse
    if passed > half then lag = string.format('%.0f', lag + passed - half) end
    local left = deadline - now + lag
    local channel = 'fairlock:' .. client
    local listeners = string.find(options, 's', 1, true) and pcall('PUBSUB', 'NUMSUB', channel)
    local is_reachable = not listeners or listeners.err or listeners[2] ~= 0
    if last < number and #last == #number and passed >= 0 and left > 0 and left < 1e15 and is_reachable then
      turn = turn == 'Q' and 'B' or string.char(string.byte(turn) + 1)
      local before = call('PTTL', lock)
      -- Each write stands behind those that are needed to take it back. A full server refuses the first one, or none.
      local new_hold = next .. ' ' .. number .. ' 1 ' .. (turn == 'Q' and '+' or '-') .. label
      local is_set = type(pcall('HSET', lock, 'fairlock', new_hold)) == 'number'
      local expires = is_set and type(pcall('PEXPIRE', lock, math.min(left, lease))) == 'number'
      local is_cleared = expires and type(pcall('HDEL', places, next)) == 'number'
      if is_cleared and type(pcall('ZREM', line, next)) == 'number' then
        --life: if kept > 0 then call('PEXPIRE', lock, math.min(left, lease) + kept) end
        if ticket > served and #ticket >= #served then served = ticket end
        call('HSET', sequence, 'state', number .. ' ' .. turn .. ' ' .. served .. ' ' .. since .. ' ' .. lag .. times)
        if turn == 'Q' then call('PEXPIRE', sequence, '86400000') end
        pcall('PUBLISH', channel, 'granted ' .. owner .. ' ' .. request .. ' ' .. number .. ' ' .. lock)
        return { 'released', 0, refused }
      end
      if is_set then call('HSET', lock, 'fairlock', hold) end
      if expires and before > 0 then call('PEXPIRE', lock, before) end
      if is_cleared then
        call('HSET', places, next, place)
        call('PEXPIRE', places, '86400000')
      end
    end
  end
end

-- lib

local member = string.match(named, '^(.*) %d+ $')
local state = open_line(lock, line, places, sequence, nil, options)
state.refused = refused

--life: local ended = string.match(named, ' (%d+) $')
--life: if grace_left and not is_holder then
--life:   -- Forgotten: the server has no hold, or an older one, whose holder is late. A claim that is later still must not bring it back.
--life:   probe_rights(state, 'holder')
--life:   end_hold(state, ended)
--life:   remove_place(state, member)
--life:   local _, held_token = parse_hold(hold)
--life:   local is_taken = held_token and tonumber(held_token) > tonumber(ended)
--life:   return { is_taken and 'not_held' or 'released', 0 }
--life: end
if not is_holder then
  -- The hold may have expired, which causes no message. And a late repeat of its acquire may have come here after the hold
  -- ended: a release ends the request, whatever its state.
  local free = is_free(lock)
  local in_line = state.length > 0 and redis.call('ZSCORE', line, member)
  if state.length > 0 and (free or in_line) then
    probe_rights(state, 'holder')
    save(state)
    if in_line then
      remove_place(state, member)
      state.head = nil -- it may have been this member
    end
    if free then hand_on(state) end
    push(state)
  end
  return { 'not_held', more_to_scan(state) }
end
--life: if grace_left then
--life:   probe_rights(state, 'holder')
--life:   end_hold(state, ended)
--life: end
if state.length == 0 and not redisson_is_due(state) then
  redis.call('DEL', lock)
  wake_plain(state)
  return { 'released', 0, state.refused }
end
probe_rights(state, 'holder')
redis.call('HSET', lock, 'fairlock', hold) -- changes nothing, and shows that HSET may be used
redis.call('DEL', lock)
if not hand_on(state) then wake_plain(state) end
push(state)
return { 'released', more_to_scan(state), state.refused }
