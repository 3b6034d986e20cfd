-- uses: lib/clock lib/kind lib/owner lib/places lib/shared
-- Takes units of the lock, or a place in the line; grants the lock to all at the head whose units are free.
-- KEYS: lock (Keys::lock), holds (Keys::holds), line (Keys::shared_line), places (Keys::shared_places), sequence (Keys::token)
-- ARGV: member, lease (ms), ttl of the place (ms), options (see lib/places), label, units that it takes, capacity, the ticket
--   that the request was told (0 if none), until when it may begin (see lib/clock)
-- Returns: {granted, token, lease left ms} | {busy, ms or -1, 1 if there is more to do}
--   | {queued, rank, recheck in ms or -1, ticket, last number}
-- Effects: holds that are over are dropped; a hold; or ticket and place, with a time to live; sequence; a push to each new holder
local lock, holds, line, places, sequence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, lease, ttl, options, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local takes, capacity, told_ticket, begin_by = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local call, pcall = redis.call, redis.pcall

-- The fast part, as in `hand_off/acquire`. It leaves to the general part: a repeat, an attempt after its end, a hold that is
-- over, a head of the line that would get its units now or is not heard, a number ahead of the clock, a marked state, a command
-- that is refused.
local exist = call('EXISTS', lock, holds, line, places)
local fields = call('HMGET', lock, 'mode', member)
local of, used = string.match(fields[1] or '', '^shared (%d+) (%d+)$')
local first = used and call('ZRANGE', holds, '0', '0', 'WITHSCORES')[2]
local is_plain = exist == 0 or of == capacity and first and (exist == 2 or exist == 4)
if is_plain and not fields[2] and told_ticket == '0' and not string.find(options, 'd', 1, true) then
  local saved, time = call('HGET', sequence, 'state'), call('TIME')
  local number = time[1] .. string.sub('00000' .. time[2], -6)
  local since = string.sub(number, 1, -4)
  local now, ends = tonumber(since), first and tonumber(first) or 1e15
  local last, turns, pulse, lag, least_ttl, least_ttl_until
  if saved then
    last, turns, pulse, lag, least_ttl, least_ttl_until = string.match(saved, '^(%d+)( %u %d+ )(%d+) (%d+) (%d+) (%d+)$')
  else
    last, turns, pulse, lag, least_ttl, least_ttl_until = '0000000000000000', ' A 0 ', since, '0', '5000', '0'
  end
  local passed = last and now - pulse
  local is_sound = last and last < number and #last == #number and number <= begin_by and passed >= 0 and ends > now and ends <= 1e15
  local has_room = (used or 0) + takes <= tonumber(capacity)
  if not is_sound then
    -- Left to the general part.
  elseif has_room and exist ~= 4 then
    local mode = 'shared ' .. capacity .. ' ' .. string.format('%.0f', (used or 0) + takes)
    -- Both keys end a second after the last hold.
    local keep = lease + 1000
    local lasts = exist == 2 and call('PTTL', lock) >= keep
    -- The first write: a full server refuses it, or none.
    call('HSET', lock, 'mode', mode, member, takes .. ' ' .. number .. ' 1 ' .. label)
    local done = pcall('ZADD', holds, string.format('%.0f', now + lease), member)
    if type(done) == 'number' and not lasts then
      done = pcall('PEXPIRE', lock, keep)
      if type(done) == 'number' then call('PEXPIRE', holds, keep) end
    end
    if type(done) == 'number' then
      call('HSET', sequence, 'state', number .. string.sub(saved or last .. turns .. since .. ' 0 5000 0', #last + 1))
      -- Every few hours. Tokens grow even if it ends, since the clock is ahead of every number that was drawn.
      if string.sub(last, 1, 6) ~= string.sub(number, 1, 6) then pcall('PEXPIRE', sequence, '86400000') end
      return { 'granted', tonumber(number), tonumber(lease) }
    end
    pcall('ZREM', holds, member)
    call('HDEL', lock, member)
    if used then call('HSET', lock, 'mode', fields[1]) else call('HDEL', lock, 'mode') end
  elseif not string.find(options, 'w', 1, true) then
    if not has_room and (exist == 2 or not call('ZSCORE', line, member)) then
      return { 'busy', math.max(50, ends - now + 1), 0 }
    end
  elseif least_ttl == ttl then
    local life = tonumber(ttl)
    -- The line clock advances by at most half of the least TTL.
    if passed > life / 2 then lag = string.format('%.0f', lag + passed - math.floor(life / 2)) end
    local clock = now - lag
    local is_behind = exist == 2
    if exist == 4 then
      -- The head waits for more than there is, and was heard within half of its place's time: then nobody behind it is next.
      local head = call('ZRANGE', line, '0', '0')[1]
      local deadline, wants, wants_of = string.match(head and call('HGET', places, head) or '', '^(%d+) %d+ %d+ (%d+)/(%d+) ')
      is_behind = wants_of == capacity and tonumber(wants) <= tonumber(capacity) and used + wants > tonumber(capacity)
        and deadline - clock > life / 2 and string.find(head, '^[^:]*:[^:]*:[^:]*$')
    end
    local deadline = string.format('%.0f', clock + life)
    -- The first write. If a full server refuses it, or the member is in line already, the general part answers.
    if is_behind and clock > 0 and pcall('ZADD', line, 'NX', number, member) == 1 then
      local place = deadline .. ' ' .. lease .. ' ' .. number .. ' ' .. takes .. '/' .. capacity .. ' ' .. label
      local done = pcall('HSET', places, member, place)
      local rank = type(done) == 'number' and pcall('ZRANK', line, member)
      if exist == 2 and type(rank) == 'number' then
        local keep = math.max(86400000, 12 * life)
        done = pcall('PEXPIRE', line, keep)
        if type(done) == 'number' then call('PEXPIRE', places, keep) end
      end
      if type(rank) == 'number' and type(done) == 'number' then
        call('HSET', sequence, 'state', number .. turns .. since .. ' ' .. lag .. ' ' .. ttl .. ' ' .. deadline)
        if string.sub(last, 1, 6) ~= string.sub(number, 1, 6) then pcall('PEXPIRE', sequence, '86400000') end
        -- See `recheck_in`.
        local left = math.max(50, ends - now + 1)
        if rank > 0 and 3 * left >= life then left = -1 end
        return { 'queued', rank, left, tonumber(number), tonumber(number) }
      end
      pcall('ZREM', line, member)
      pcall('HDEL', places, member)
    end
  end
end

-- lib

lease, takes, capacity, told_ticket = tonumber(lease), tonumber(takes), tonumber(capacity), tonumber(told_ticket)

local state = open_lock(lock, holds, line, places, sequence, ttl, options)
local refused = refusal(state, capacity)
if refused then return refused end
-- A repeat, whose first answer was lost; or the push was lost.
local hold = hold_of(state, member)
if hold then return { 'granted', hold.token, hold.ends - now } end
local ticket = state.length > 0 and tonumber(redis.call('ZSCORE', line, member))
if not ticket and not state.waits and #state.over == 0 and state.used + takes > capacity then
  return { 'busy', recheck_in(state, 0), 0 }
end
if not ticket and late(begin_by) then return late(begin_by) end

local restored = not ticket and state.waits and may_restore(state, member, told_ticket)
begin(state, restored and 'restored' or ticket and 'waiter' or 'newcomer')
drop_over(state)
local labelled = string.format('%.0f/%.0f %s', takes, capacity, label)
if restored then
  ticket = restore_place(state, member, told_ticket, lease, labelled)
elseif ticket then
  ticket = refresh_place(state, member, ticket, lease, labelled)
end
if ticket then keep_line(state) end
hand_on(state)
local granted = state.grants[member]
if not granted and not ticket and may_enter(state, takes, capacity) then
  granted = grant(state, member, takes, capacity, lease, label)
end
-- The waiters ahead have another capacity.
refused = not granted and state.capacity and state.capacity ~= capacity
if not granted and not refused then
  if state.waits and not ticket then
    add_place(state, member, next_number(state), lease, labelled)
    keep_line(state)
  elseif not state.waits and ticket then
    -- It may have been the one that did not fit.
    remove_place(state, member)
    state.head = nil
    hand_on(state)
  end
end
if ticket then sweep(state) end
settle(state)
push(state)

if granted then return { 'granted', granted.token, granted.lease } end
if refused then return mismatch('shared ' .. format_int(state.capacity), kind_of(format_int(capacity))) end
if not state.waits then return { 'busy', recheck_in(state, 0), more_to_do(state) } end
local rank = state.length == 0 and 0 or redis.call('ZRANK', line, member)
return { 'queued', rank, recheck_in(state, rank), ticket or state.last, state.last }
