-- Ends a hold, and grants its units to waiters.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: the hold as `<capacity> <member> <token> `, options (see lib/line)
-- Returns: 1 if there is more to do, or 0 | {not_held, 1 if there is more to do}
-- Effects: the hold and those that are over are dropped; sequence; a push to each new holder
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local named, options = ARGV[1], ARGV[2]
local call, pcall = redis.call, redis.pcall

-- The fast part, as in `acquire`. It ends a hold of all units without re-entries, or a part, and grants the units to up to 16 waiters
-- at the head. It leaves to the general part: holds that are over, a line that rests, and a waiter that could be next and is deaf,
-- parked, overdue, not subscribed, older than the record, or behind many others that could be.
local mode = not grace_left and call('HGET', lock, 'mode')
local is_whole = mode and string.find(mode, named, 1, true) == 1
local ends_whole = is_whole and string.sub(mode, #named + 1, #named + 2) == '1 '
local waiter = (ends_whole or mode and ends and not is_whole) and call('ZRANGE', line, '0', '0')
if ends_whole and not waiter[1] then
  call('DEL', lock)
  local braced = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  pcall('PUBLISH', 'redisson_lock__channel:' .. braced, '0')
  return 0
end
if waiter then
  -- @include lib/number: number, since
  waiter = waiter[1]
  -- The units that stay used, whether no other hold is left, and the end of the last one.
  local capacity, used, is_lone, last_end, is_plain = string.match(named, '^%d+'), 0, true, 0, ends_whole
  local member, lasts_too_long
  if not ends_whole then
    local token, of, units, held_token
    member, token = string.match(named, '^%d+ (.*) (%d+) $')
    of, used = string.match(mode, '^of (%d+) (%d+)$')
    units, held_token = string.match(call('HGET', lock, member) or '', '^(%d+) (%d+) ')
    if of == capacity and held_token == token then
      local soonest = call('ZRANGE', ends, '0', '0', 'WITHSCORES')
      local latest = call('ZRANGE', ends, '0', '1', 'REV', 'WITHSCORES')
      is_plain = soonest[2] and soonest[2] > since and #latest[2] == #since
      is_lone = not latest[3]
      used = is_lone and 0 or math.max(0, used - units)
      last_end = tonumber(latest[1] == member and (latest[4] or 0) or latest[2])
      lasts_too_long = latest[1] == member and latest[4] and latest[2] - latest[4] > 60000
    end
    if is_plain and is_lone and not waiter then
      if pcall('DEL', lock) == 1 then
        call('DEL', ends)
        return 0
      end
      is_plain = false
    end
  end

  -- The winners' new holds are planned before the first write.
  local born, pulse, lag, times, least_ttl, rest, heard
  local now, last, winners, fields, new_ends, new_mode, keep = tonumber(since)
  local texts = is_plain and waiter and call('HMGET', record, waiter, 'state')
  if texts then
    born, pulse, lag, times, least_ttl = string.match(texts[2] or '', '^ (%d+) (%d+) (%d+)( (%d+) %d+)$', 17)
    local passed = born and now - pulse
    -- Line and record have to be kept from time to time: see lib/clock.
    is_plain = born and texts[2] < number and passed >= 0 and passed <= now % 10000000
    if is_plain and passed > least_ttl / 2 then lag = string.format('%d', lag + passed - math.floor(least_ttl / 2)) end
  end
  while is_plain and waiter do
    local colon = waiter ~= member and string.find(waiter, ':', 1, true)
    local channel = colon and 'fairlock:' .. string.sub(waiter, 1, colon - 1)
    -- A letter would follow the ticket of a place that is parked or deaf.
    local deadline, lease, ticket, takes, of, label =
      string.match(texts[rest and #winners or 1] or '', '^(%d+) (%d+) (%d+) (%d+)/(%d+) (.*)$')
    local left = channel and of == capacity and takes ~= '0' and deadline - now + lag or 0
    is_plain = left > 0 and left < 1e15 and ticket >= born and (takes == of or tonumber(takes) < tonumber(of))
    local takes_all = used == 0 and takes == capacity
    if is_plain and not takes_all and used + takes > tonumber(capacity) then
      is_plain = left > least_ttl / 2
      break
    end
    if is_plain and channel ~= heard then
      local listeners = string.find(options, 's', 1, true) and pcall('PUBSUB', 'NUMSUB', channel)
      is_plain = not listeners or listeners.err or listeners[2] ~= 0
      heard = channel
    end
    if not is_plain then break end
    last = winners and string.format('%d', number + #winners) or number
    local lasts = math.max(1, math.min(left, lease)) + kept
    if takes_all then
      keep = string.format('%d', lasts)
      new_mode = capacity .. ' ' .. waiter .. ' ' .. last .. ' 1 ' .. label
      break
    end
    if not winners then winners, fields, new_ends = {}, { 'mode', '' }, {} end
    winners[#winners + 1] = waiter
    fields[#fields + 1] = waiter
    fields[#fields + 1] = takes .. ' ' .. last .. ' 1 ' .. label
    new_ends[#new_ends + 1] = string.format('%d', now + lasts)
    new_ends[#new_ends + 1] = waiter
    last_end, used = math.max(last_end, now + lasts), used + takes
    if used == tonumber(capacity) then break end
    -- If others hold the lock, the head has waited for units, and few can be next.
    local most = is_lone and 15 or 1
    if not rest then
      rest = call('ZRANGE', line, '1', most .. '')
      texts = rest[1] and call('HMGET', record, unpack(rest))
    end
    waiter = rest[#winners]
    is_plain = waiter or #rest < most -- else more may follow that fit
  end
  last = last or born and string.sub(texts[2], 1, 16)
  local state = born and last .. ' ' .. born .. ' ' .. since .. ' ' .. lag .. times

  if is_plain and ends_whole and new_mode then
    -- Each write can be taken back by those before it. A full server refuses the first one, or none.
    local is_set = pcall('HSET', lock, 'mode', new_mode) == 0
    local is_cleared = is_set and pcall('HDEL', record, waiter) == 1
    -- (The releaser no longer counts on its lease, so that need not be taken back.)
    if is_cleared and pcall('PEXPIRE', lock, keep) == 1 and pcall('ZREM', line, waiter) == 1 then
      call('HSET', record, 'state', state)
      pcall('PUBLISH', heard, 'granted ' .. waiter .. ' ' .. number .. ' ' .. lock)
      return 0
    end
    if is_set then call('HSET', lock, 'mode', mode) end
    if is_cleared then call('HSET', record, waiter, texts[1]) end
  elseif is_plain then
    -- A full server never refuses the first write, and so takes what follows. Each command is used without effect first.
    local function may(...) return type(pcall(...)) == 'number' end
    winners, fields = winners or new_mode and { waiter }, fields or { 'mode' }
    fields[2] = new_mode or 'of ' .. capacity .. ' ' .. used
    if may('HDEL', lock, 'nobody') and may('ZREM', line, 'nobody')
      and (not winners or may('ZADD', line, 'XX', '0', 'nobody') and may('PEXPIRE', record, '96400000'))
      and may('HSET', lock, unpack(fields)) then
      if not ends_whole then
        call('HDEL', lock, member)
        call('ZREM', ends, member)
      end
      if new_ends then call('ZADD', ends, unpack(new_ends)) end
      -- Both keys end a second after the last hold, or a minute later.
      if winners or lasts_too_long then
        keep = keep or string.format('%d', last_end - now + 1000)
        pcall('PEXPIRE', lock, keep)
        if not new_mode then pcall('PEXPIRE', ends, keep) end
      end
      if winners then
        call('ZREM', line, unpack(winners))
        call('HDEL', record, unpack(winners))
      end
      if state then call('HSET', record, 'state', state) end
      for index, winner in ipairs(winners or {}) do
        local channel, token = 'fairlock:' .. string.match(winner, '^[^:]*'), string.format('%d', number + index - 1)
        pcall('PUBLISH', channel, 'granted ' .. winner .. ' ' .. token .. ' ' .. lock)
      end
      return 0
    end
  end
end

-- The general part.
-- @include lib/clock: format_int
-- @include lib/line: remove_place, remove_leftover
-- @include lib/holds: open_lock, hold_of, begin, drop, hand_on, settle, push, more_to_do

local member, token = string.match(named, '^%d+ (.*) (%d+) $')
local state = open_lock(lock, line, record, ends, nil, options)
local hold = hold_of(state, member)
local is_held = hold and format_int(hold.token) == token
-- A late repeat of its acquire may have come here after the hold ended: a release ends the request, whatever its state.
local in_line = not is_held and state.length > 0 and redis.call('ZSCORE', line, member)
-- The hold may have expired, which causes no message: so what is free is handed on.
local is_taken = state.capacity and state.used >= state.capacity
if not is_held and not grace_left and not in_line and (state.length == 0 or is_taken) and #state.over == 0 then
  remove_leftover(state, member)
  return { 'not_held', 0 }
end
-- If it was forgotten, a claim that is later still must not bring it back.
local is_whole = not ends or hold and hold.takes == state.capacity
begin(state, false, unpack(grace_left and { ended_with(state, token, is_whole) } or {}))
if is_held then drop(state, { member }) end
drop(state, state.over)
if not is_held then remove_place(state, member) end
hand_on(state)
settle(state)
push(state)
-- In a grace the server may have no hold, or an older one, whose holder is late.
local is_later = state.whole and state.whole.token > tonumber(token)
if is_held or grace_left and not is_later then return more_to_do(state) end
return { 'not_held', more_to_do(state) }
