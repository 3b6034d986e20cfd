-- uses: lib/clock lib/kind lib/owner lib/line lib/redisson_turn lib/holds
-- Ends a hold, and grants its units to waiters.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: the hold as `<capacity> <member> <token> `, options (see lib/line)
-- Returns: 1 if there is more to do, or 0, plus 2 if a look at Redisson's line was refused | {not_held, 1 if there is more to do}
-- Effects: the hold and those that are over are dropped; sequence; a push to each new holder
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local named, options = ARGV[1], ARGV[2]
local call, pcall = redis.call, redis.pcall
local refused -- see `look` in lib/redisson_turn

-- The fast part, as in `acquire`. It releases a hold of all units without re-entries whose line is empty, or whose units all go to
-- the head; below, a part of them, or all to several waiters. It leaves to the general part: holds that are over, a hold that is
-- marked with `!`, a turn of Redisson's line, and a waiter that could be next and is deaf, parked, overdue, not subscribed, or
-- behind many others that could be.
local mode, mark = not grace_left and call('HGET', lock, 'mode'), nil
if mode and string.find(mode, named, 1, true) == 1 then
  mark = string.sub(mode, #named + 1, #named + 3)
  if mark == '1 +' then
    local queue = 'redisson_lock_queue:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}')
    local first = string.find(options, 'r', 1, true) and pcall('LINDEX', queue, '0')
    refused = type(first) == 'table' and 2 or nil
    mark = first and not refused and mark or '1 -'
  end
  local next = mark == '1 -' and call('ZRANGE', line, '0', '0')
  if next and not next[1] then
    call('DEL', lock)
    local braced = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
    pcall('PUBLISH', 'redisson_lock__channel:' .. braced, '0')
    return refused or 0
  end
  next = next and next[1]
  local client = next and string.match(next, '^([^:]*):[^:]*:[^:]*$')
  if client then
    local saved, capacity = call('HMGET', record, next, 'state'), string.sub(named, 1, string.find(named, ' ', 1, true))
    -- A letter would follow the ticket of a place that is parked or deaf.
    local deadline, lease, ticket, wants, of, label = string.match(saved[1] or '', '^(%d+) (%d+) (%d+) (%d+)/(%d+ )(.*)$')
    local last, turn, served, pulse, lag, times, least_ttl = string.match(of == capacity and saved[2] or '',
      '^(%d+) (%u) (%d+) (%d+) (%d+)( (%d+) %d+)$')
    local time = call('TIME')
    local number = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
    if last and last < number and #last == #number and wants .. ' ' == of then
      local since = string.sub(number, 1, -4)
      local now, half = tonumber(since), math.floor(least_ttl / 2)
      local passed = now - pulse
      if passed > half then lag = string.format('%.0f', lag + passed - half) end
      local left = deadline - now + lag
      local channel = 'fairlock:' .. client
      local listeners = string.find(options, 's', 1, true) and pcall('PUBSUB', 'NUMSUB', channel)
      if passed >= 0 and left > 0 and left < 1e15 and (not listeners or listeners.err or listeners[2] ~= 0) then
        turn = turn == 'Q' and 'B' or string.char(string.byte(turn) + 1)
        local lasts = kept == 0 and left >= tonumber(lease) and lease or math.min(left, lease) + kept .. ''
        -- Each write can be taken back by those before it. A full server refuses the first one, or none.
        local new_hold = capacity .. next .. ' ' .. number .. ' 1 ' .. (turn == 'Q' and '+' or '-') .. label
        local is_set = type(pcall('HSET', lock, 'mode', new_hold)) == 'number'
        local is_cleared = is_set and type(pcall('HDEL', record, next)) == 'number'
        -- (The releaser no longer counts on its lease, so that need not be taken back.)
        local lasts_so = is_cleared and type(pcall('PEXPIRE', lock, lasts)) == 'number'
        if lasts_so and type(pcall('ZREM', line, next)) == 'number' then
          if ticket > served and #ticket >= #served then served = ticket end
          call('HSET', record, 'state', number .. ' ' .. turn .. ' ' .. served .. ' ' .. since .. ' ' .. lag .. times)
          if turn == 'Q' then call('PEXPIRE', record, '86400000') end
          pcall('PUBLISH', channel, 'granted ' .. next .. ' ' .. number .. ' ' .. lock)
          return refused or 0
        end
        if is_set then call('HSET', lock, 'mode', mode) end
        if is_cleared then call('HSET', record, next, saved[1]) end
      end
    end
  end
end
if mode and ends then
  local member, token = string.match(named, '^%d+ (.*) (%d+) $')
  local capacity, used = string.match(mark == '1 -' and 'of ' .. named or mode, '^of (%d+) (%d*)')
  local field = mark == '1 -' and '0 ' .. token .. ' ' or not mark and call('HGET', lock, member) or ''
  local units, held_token = string.match(field, '^(%d+) (%d+) ')
  local time = call('TIME')
  local number = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
  local since, early, late = string.sub(number, 1, -4), {}, {}
  if not mark and held_token == token then
    early = call('ZRANGE', ends, '0', '0', 'WITHSCORES')
    late = call('ZRANGE', ends, '0', '1', 'REV', 'WITHSCORES')
  end
  local is_lone = not late[3]
  if held_token == token and (mark or early[2] and early[2] > since and #late[2] == #since) then
    used = is_lone and 0 or math.max(0, used - units)
    -- If others hold the lock, the head has waited for units, and few can be next.
    local most = math.min(capacity - used, is_lone and 15 or 1)
    local members = call('ZRANGE', line, '0', most .. '')
    if is_lone and not members[1] then
      if pcall('DEL', lock) == 1 then
        call('DEL', ends)
        return 0
      end
      most = nil
    end

    -- The winners' new holds are planned before the first write.
    local fields, new_ends, winners, is_plain = { 'mode', '' }, {}, {}, most
    local new_end = tonumber(late[1] == member and (late[4] or 0) or late[2] or 0)
    local last, turn, served, pulse, lag, times, least_ttl
    if members[1] then
      local texts = call('HMGET', record, 'state', unpack(members))
      last, turn, served, pulse, lag, times, least_ttl =
        string.match(texts[1] or '', '^(%d+) (%u) (%d+) (%d+) (%d+)( (%d+) %d+)$')
      local now, is_blocked, heard = tonumber(since), false, nil
      is_plain = last and last < number and #last == #number and pulse <= since
      if is_plain and now - pulse > math.floor(least_ttl / 2) then
        lag = string.format('%.0f', lag + now - pulse - math.floor(least_ttl / 2))
      end
      for index = 1, is_plain and #members or 0 do
        local waiter = members[index]
        local client = waiter ~= member and string.match(waiter, '^([^:]*):[^:]*:[^:]*$')
        -- A letter would follow the ticket of a place that is parked or deaf.
        local deadline, lease, ticket, takes, of, label =
          string.match(texts[index + 1] or '', '^(%d+) (%d+) (%d+) (%d+)/(%d+) (.*)$')
        local left = client and of == capacity and takes ~= '0' and tonumber(takes) <= tonumber(of) and deadline - now + lag or 0
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
        last = string.format('%.0f', tonumber(number) + #winners)
        local lasts = math.max(1, math.min(left, lease)) + kept
        if takes == capacity then
          turn = turn == 'Q' and 'B' or string.char(string.byte(turn) + 1)
          fields[2] = capacity .. ' ' .. waiter .. ' ' .. last .. ' 1 ' .. (turn == 'Q' and '+' or '-') .. label
        else
          fields[#fields + 1] = waiter
          fields[#fields + 1] = takes .. ' ' .. last .. ' 1 ' .. label
          new_ends[#new_ends + 1] = now + lasts .. ''
          new_ends[#new_ends + 1] = waiter
        end
        winners[#winners + 1] = waiter
        new_end = math.max(new_end, now + lasts)
        used = used + takes
        if ticket > served and #ticket >= #served then served = ticket end
      end
      -- More may follow that fit.
      is_plain = is_plain and (is_blocked or #members <= most or used == tonumber(capacity))
    end

    -- A full server never refuses the first write, and so takes what follows. Each command is used without effect first.
    local function may(...) return type(pcall(...)) == 'number' end
    if is_plain and may('HDEL', lock, 'nobody') and may('ZREM', line, 'nobody')
      and (not winners[1] or may('ZADD', line, 'XX', '0', 'nobody') and may('PEXPIRE', record, '86400000')) then
      local is_whole = fields[2] ~= ''
      if not is_whole then fields[2] = 'of ' .. capacity .. ' ' .. used end
      if may('HSET', lock, unpack(fields)) then
        if not mark then
          call('HDEL', lock, member)
          call('ZREM', ends, member)
        end
        if new_ends[1] then call('ZADD', ends, unpack(new_ends)) end
        local keep = new_end - since + (is_whole and 0 or 1000) .. ''
        -- Both keys end a second after the last hold, or a minute later.
        if winners[1] then
          call('PEXPIRE', lock, keep)
          if not is_whole then call('PEXPIRE', ends, keep) end
        elseif late[1] == member and late[2] - late[4] > 60000 then
          pcall('PEXPIRE', lock, keep)
          pcall('PEXPIRE', ends, keep)
        end
        if winners[1] then
          call('ZREM', line, unpack(winners))
          call('HDEL', record, unpack(winners))
        end
        if last then
          call('HSET', record, 'state', last .. ' ' .. turn .. ' ' .. served .. ' ' .. since .. ' ' .. lag .. times)
        end
        for index, waiter in ipairs(winners) do
          last = string.format('%.0f', tonumber(number) + index - 1)
          pcall('PUBLISH', 'fairlock:' .. string.match(waiter, '^[^:]*'), 'granted ' .. waiter .. ' ' .. last .. ' ' .. lock)
        end
        return 0
      end
    end
  end
end

-- lib

local member, token = string.match(named, '^%d+ (.*) (%d+) $')
local state = open_lock(lock, line, record, ends, nil, options)
state.refused = refused
local hold = hold_of(state, member)
local is_held = hold and format_int(hold.token) == token
-- A late repeat of its acquire may have come here after the hold ended: a release ends the request, whatever its state.
local in_line = not is_held and state.length > 0 and redis.call('ZSCORE', line, member)
-- The hold may have expired, which causes no message: so what is free is handed on.
local is_taken = state.capacity and state.used >= state.capacity
if not is_held and not grace_left and not in_line and (state.length == 0 or is_taken) and #state.over == 0 then
  return { 'not_held', 0 }
end
if grace_left then
  -- If it was forgotten, a claim that is later still must not bring it back.
  begin(state, 'holder', ended_with(state, token, not ends or hold and hold.takes == state.capacity))
else
  begin(state, 'holder')
end
if is_held then drop(state, { member }) end
drop_over(state)
if in_line then remove_place(state, member) end
hand_on(state)
settle(state)
push(state)
-- In a grace the server may have no hold, or an older one, whose holder is late.
local is_later = state.whole and state.whole.token > tonumber(token)
if is_held or grace_left and not is_later then return more_to_do(state) + (state.refused or 0) end
return { 'not_held', more_to_do(state) }
