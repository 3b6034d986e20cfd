-- uses: lib/clock lib/kind lib/owner lib/places lib/shared
-- Ends a hold and grants its units to waiters.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: the hold's member, token and a space, options (see lib/places)
-- Returns: {released, 1 if there is more to do} | {not_held, as before}
-- Effects: the hold and those that are over are dropped; sequence; a push to each new holder
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local named, options = ARGV[1], ARGV[2]
local call, pcall = redis.call, redis.pcall
local member, token = string.match(named, '^(.*) (%d+) $')

-- The fast part, as in `hand_off/acquire`. It leaves to the general part: holds that are over, and a waiter that could be
-- next and is deaf, parked, overdue, not subscribed, or behind many others that could be.
local fields = call('HMGET', lock, 'mode', member)
local capacity, used = string.match(fields[1] or '', '^shared (%d+) (%d+)$')
local held_units, held_token = string.match(fields[2] or '', '^(%d+) (%d+) ')
if used and held_token == token then
  local earliest = call('ZRANGE', holds, '0', '1', 'WITHSCORES')
  local latest = call('ZRANGE', holds, '0', '1', 'REV', 'WITHSCORES')
  local time = call('TIME')
  local number = time[1] .. string.sub('00000' .. time[2], -6)
  local since = string.sub(number, 1, -4)
  local now, is_lone = tonumber(since), not earliest[3]
  local is_plain = earliest[1] and tonumber(earliest[2]) > now and tonumber(latest[2]) < 1e15
    and (not is_lone or earliest[1] == member)
  used = is_lone and 0 or math.max(0, used - held_units)
  -- If others hold the lock, the head has waited for units, and few can be next.
  local most = math.min(capacity - used, is_lone and 15 or 1)
  local members = call('ZRANGE', line, '0', string.format('%.0f', most))
  if is_plain and is_lone and not members[1] then
    if pcall('DEL', lock) == 1 then
      call('DEL', holds)
      return { 'released', 0 }
    end
    is_plain = false
  end

  -- The winners' new holds are planned before the first write.
  local winners, tokens, shares, ends = {}, {}, {}, {}
  local last, former_last, turn, served, pulse, lag, times, least_ttl
  -- When the last hold ends, and will end.
  local last_end, new_last_end = tonumber(latest[2]), tonumber(latest[1] == member and (latest[4] or 0) or latest[2])
  if is_plain and members[1] then
    last, turn, served, pulse, lag, times, least_ttl =
      string.match(call('HGET', sequence, 'state') or '', '^(%d+) (%u) (%d+) (%d+) (%d+)( (%d+) %d+)$')
    former_last = last
    local passed = last and now - pulse
    is_plain = last and last < number and #last == #number and passed >= 0
    local half = is_plain and math.floor(least_ttl / 2)
    if is_plain and passed > half then lag = string.format('%.0f', lag + passed - half) end
    local texts, is_blocked, heard = call('HMGET', places, unpack(members)), false, nil
    for index = 1, is_plain and #members or 0 do
      local waiter = members[index]
      local client = waiter ~= member and string.match(waiter, '^([^:]*):[^:]*:[^:]*$')
      -- A letter would follow the ticket of a place that is parked or deaf.
      local deadline, lease, ticket, takes, of, label =
        string.match(texts[index] or '', '^(%d+) (%d+) (%d+) (%d+)/(%d+) (.*)$')
      local is_sane = client and of == capacity and takes ~= '0' and tonumber(takes) <= tonumber(of)
      local left = is_sane and deadline - now + lag or 0
      if left <= 0 or left >= 1e15 then is_plain = false break end
      if used + takes > tonumber(capacity) then
        is_plain, is_blocked = left > least_ttl / 2, true
        break
      end
      if client ~= heard then
        local listeners = string.find(options, 's', 1, true) and pcall('PUBSUB', 'NUMSUB', 'fairlock:' .. client)
        if listeners and not listeners.err and listeners[2] == 0 then is_plain = false break end
        heard = client
      end
      local ends_at = now + math.max(1, math.min(left, lease))
      last = string.format('%.0f', tonumber(number) + #winners)
      winners[#winners + 1], tokens[#winners + 1] = waiter, last
      shares[#shares + 1] = waiter
      shares[#shares + 1] = takes .. ' ' .. last .. ' 1 ' .. label
      ends[#ends + 1] = string.format('%.0f', ends_at)
      ends[#ends + 1] = waiter
      if ticket > served and #ticket >= #served then served = ticket end
      used, new_last_end = used + takes, math.max(new_last_end, ends_at)
    end
    -- More may follow that fit.
    is_plain = is_plain and (is_blocked or #members <= most)
  end

  if is_plain then
    local keep = string.format('%.0f', new_last_end - now + 1000)
    -- Each write stands behind those that are needed to take it back. A full server refuses the first one, or none.
    local done = new_last_end <= last_end or type(pcall('PEXPIRE', lock, keep)) == 'number'
    local mode = 'shared ' .. capacity .. ' ' .. string.format('%.0f', used)
    local is_set = done and type(pcall('HSET', lock, 'mode', mode)) == 'number'
    done = is_set and type(pcall('HDEL', lock, member)) == 'number'
    if done and winners[1] then
      done = type(pcall('ZADD', line, 'XX', '0', 'nobody')) == 'number'
        and type(pcall('ZREM', line, unpack(winners))) == 'number'
    elseif done then
      done = type(pcall('ZREM', holds, member)) == 'number'
    end
    if done then
      if winners[1] then
        call('HSET', lock, unpack(shares))
        call('ZADD', holds, unpack(ends))
        call('ZREM', holds, member)
        call('HDEL', places, unpack(winners))
      end
      if new_last_end < last_end then pcall('PEXPIRE', lock, keep) end
      if new_last_end ~= last_end then pcall('PEXPIRE', holds, keep) end
      if turn then
        call('HSET', sequence, 'state', last .. ' ' .. turn .. ' ' .. served .. ' ' .. since .. ' ' .. lag .. times)
        if string.sub(former_last, 1, 6) ~= string.sub(last, 1, 6) then pcall('PEXPIRE', sequence, '86400000') end
      end
      for index, waiter in ipairs(winners) do
        local client, owner, request = string.match(waiter, '^([^:]*):([^:]*):([^:]*)$')
        pcall('PUBLISH', 'fairlock:' .. client, 'granted ' .. owner .. ' ' .. request .. ' ' .. tokens[index] .. ' ' .. lock)
      end
      return { 'released', 0 }
    end
    if is_set then call('HSET', lock, 'mode', fields[1], member, fields[2]) end
  end
end

-- lib

local state = open_lock(lock, holds, line, places, sequence, nil, options)
local hold = hold_of(state, member)
local is_held = hold and format_int(hold.token) == token
-- A late repeat of its acquire may have come here after the hold ended: a release ends the request, whatever its state.
local in_line = not is_held and state.length > 0 and redis.call('ZSCORE', line, member)
if not is_held and state.length == 0 and #state.over == 0 then return { 'not_held', 0 } end

begin(state, 'holder')
if is_held then drop(state, { member }) end
drop_over(state)
if in_line then
  remove_place(state, member)
  state.head = nil -- it may have been this member
end
hand_on(state)
settle(state)
push(state)
return { is_held and 'released' or 'not_held', more_to_do(state) }
