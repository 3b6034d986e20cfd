-- Takes units of the lock, or a place in the line; grants it to all at the head whose units are free.
-- KEYS: lock (Keys::lock), line (Keys::line), record (Keys::record), and unless the capacity is 1 ends (Keys::ends)
-- ARGV: member, lease (ms), ttl of the place (ms), options (see lib/line), label, units, capacity, until when it may begin (see
--   lib/clock), and the ticket that the request was told, if any
-- Returns: token, if granted for the lease that was asked | {granted, token, lease left ms} | {busy, ms or -1, 1 if there is more to
--   do} | [rank, recheck in ms or -1, ticket, last number, 1 if another discipline's hold has the lock]
-- Effects: holds that are over are dropped; a hold; or ticket and place, with a time to live; sequence; a push to each new holder
local lock, line, record, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local member, lease, ttl, options, label = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local takes, capacity, begin_by, told_ticket = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local call, pcall = redis.call, redis.pcall

-- The fast part: the common cases, before any function is made. What is not plain is left to the general part below: a
-- repeat, an attempt after its end, a number ahead of the clock, units that are free although there is a line, a hold that is over,
-- a line that rests, a command that is refused. The fast part takes back what it has written by then, so the general
-- part runs as if it were alone, and says what is wrong. Numbers are passed as text: Redis needs long to format them.
local exist = ends and call('EXISTS', lock, line, ends) or call('EXISTS', lock, line)
local used, first, left, is_behind, has_room = '0', nil, nil, false, exist == 0
if exist > 0 then
  -- (No mode: a lock of Redisson's, or a line without a holder.)
  local fields = call('HMGET', lock, 'mode', member)
  local mode, at, of = fields[1] or '', #capacity + 2, nil
  if string.find(mode, capacity .. ' ', 1, true) == 1 then
    -- Held by another request, which begins with the UUID of a client.
    is_behind = string.find(mode, member, at, true) ~= at and string.find(mode, '^%x+%-', at)
  elseif ends and not fields[2] then
    of, used = string.match(mode, '^of (%d+) (%d+)$')
    first = of == capacity and call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2]
    -- A key without an end was made so by hand: the general part gives it one.
    left = first and call('PTTL', lock)
    if left and left < 0 then first = nil end
    has_room = first and exist == 2 and used + takes <= tonumber(capacity)
    is_behind = first and not has_room
  end
end
if (has_room or is_behind) and not told_ticket and not grace_left then
  -- @include lib/number: number, since
  local saved = call('HGET', record, 'state')
  local state = saved or '0000000000000000 ' .. number .. ' ' .. since .. ' 0 ' .. ttl .. ' 0'
  local is_plain = string.sub(state, 17, 17) == ' '
  local is_over = first and (first <= since or #first ~= #since)
  if not is_plain or state >= number or saved and saved < '0000000000000001' or number > begin_by or is_over then
    -- Left to the general part.
  elseif is_behind and not string.find(options, 'w', 1, true) then
    -- Where units are free beside a line, this is a heartbeat of the line, too.
    local is_full = not first or exist == 2 and used + takes > tonumber(capacity) or used == capacity
    if is_full and not call('ZSCORE', line, member) then
      return { 'busy', first and first - since or call('PTTL', lock), 0 }
    end
  elseif is_behind then
    local born, pulse, lag, least_ttl = string.match(state, '^( %d+ )(%d+) (%d+) (%d+) %d+$', 17)
    if saved and least_ttl == ttl and pulse <= since and not string.find(options, 'd', 1, true) then
      local now, life = tonumber(since), tonumber(ttl)
      local passed = now - pulse
      -- The line clock advances by at most half of the least TTL.
      if passed > life / 2 then lag = string.format('%.0f', lag + passed - math.floor(life / 2)) end
      local clock, is_next = now - lag, false
      if first and exist == 3 then
        -- Nobody behind the head is next if it waits for more than there is, and was heard within half of its place's time.
        local head = call('ZRANGE', line, '0', '0')[1]
        local heard, wants, of = string.match(head and call('HGET', record, head) or '', '^(%d+) %d+ %d+ (%d+)/(%d+) ')
        is_next = of ~= capacity or tonumber(wants) > tonumber(of) or used + wants <= tonumber(capacity)
          or heard - clock <= life / 2 or not string.find(head, '^[^:]*:[^:]*:[^:]*$')
      end
      local deadline = string.format('%d', clock + life)
      left = first and first - now or call('PTTL', lock)
      -- The first write. If a full server refuses it, or the member is in line already, the general part answers.
      if not is_next and clock > 0 and pcall('ZADD', line, 'NX', number, member) == 1 then
        local rank = pcall('ZRANK', line, member)
        local done = type(rank) == 'number'
        -- (Beside a hold of all units the third key may be left over.)
        -- (As `keep_line`. Each script that moves the line's pulse looks whether it passes ten million milliseconds.)
        if exist == (first and 2 or 1) or passed > now % 10000000 or rank == 0 and call('PTTL', line) < 0 then
          local keep = life > 8033333 and 12 * life or '96400000'
          done = done and pcall('PEXPIRE', line, keep) == 1 and pcall('PEXPIRE', record, keep) == 1
        end
        state = number .. born .. since .. ' ' .. lag .. ' ' .. ttl .. ' ' .. deadline
        local place = deadline .. ' ' .. lease .. ' ' .. number .. ' ' .. takes .. '/' .. capacity .. ' ' .. label
        if done and type(pcall('HSET', record, 'state', state, member, place)) == 'number' then
          -- See `recheck_in`.
          if left < 0 or rank > 0 and 3 * left >= life then left = -2 end
          if capacity ~= '1' and left >= 0 then left = math.max(49, left) end
          local ticket = tonumber(number)
          return { rank, left + 1, ticket, ticket, 0 }
        end
        pcall('ZREM', line, member)
      end
    end
  elseif takes == capacity then
    -- The first write: a full server refuses it, or none.
    call('HSET', lock, 'mode', capacity .. ' ' .. member .. ' ' .. number .. ' 1 ' .. label)
    if type(pcall('PEXPIRE', lock, kept == 0 and lease or string.format('%d', lease + kept))) == 'number' then
      call('HSET', record, 'state', number .. string.sub(state, 17))
      -- Where the last number was from before these ten million milliseconds: see lib/clock.
      if state < string.sub(number, 1, 6) then call('PEXPIRE', record, '96400000') end
      return tonumber(number)
    end
    if type(pcall('HDEL', lock, 'mode')) == 'table' then call('DEL', lock) end
  else
    local lasts = lease + kept
    local mode, keep = 'of ' .. capacity .. ' ' .. used + takes, string.format('%d', lasts + 1000)
    -- The first write: a full server refuses it, or none.
    call('HSET', lock, 'mode', mode, member, takes .. ' ' .. number .. ' 1 ' .. label)
    local done = pcall('ZADD', ends, string.format('%d', since + lasts), member) == 1
    -- Both keys end a second after the last hold.
    if done and not (first and left >= lasts + 1000) then
      done = pcall('PEXPIRE', lock, keep) == 1 and pcall('PEXPIRE', ends, keep) == 1
    end
    if done then
      call('HSET', record, 'state', number .. string.sub(state, 17))
      if state < string.sub(number, 1, 6) then pcall('PEXPIRE', record, '96400000') end
      return tonumber(number)
    end
    pcall('ZREM', ends, member)
    call('HDEL', lock, member)
    if first then call('HSET', lock, 'mode', 'of ' .. capacity .. ' ' .. used) else call('HDEL', lock, 'mode') end
  end
end

-- The general part.
-- @include lib/clock: late
-- @include lib/kind: mismatch
-- @include lib/line: next_number, add_place, refresh_place, remove_place, keep_line, may_restore,
--   was_forgotten, is_resting, restore_place, sweep
-- @include lib/holds: open_lock, hold_of, lease_left, refusal, begin, drop, grant, hand_on, settle, push, more_to_do,
--   busy_for, recheck_in

lease, takes, capacity, told_ticket = tonumber(lease), tonumber(takes), tonumber(capacity), tonumber(told_ticket)

local state = open_lock(lock, line, record, ends, ttl, options)
local other_kind = refusal(state, capacity)
if other_kind then return other_kind end
local hold = hold_of(state, member)
if hold and grace_left then return in_grace() end
-- A repeat, whose first answer was lost; or the push was lost. A hold of this owner under another request does not matter:
-- which of the two is the late one can't be known here.
if hold then return { 'granted', hold.token, lease_left(state, hold, lease) } end
local ticket = state.length > 0 and tonumber(redis.call('ZSCORE', line, member))
local is_full = state.capacity and (state.used >= state.capacity or state.length == 0 and state.used + takes > capacity)
if not ticket and not state.waits and #state.over == 0 and is_full then return { 'busy', busy_for(state), 0 } end
if not ticket and late(begin_by) then return late(begin_by) end

local restored = not ticket and state.waits and may_restore(state, member, told_ticket)
local is_forgotten = restored and was_forgotten(state, member, told_ticket)
local was_free = not state.capacity or state.used < state.capacity or #state.over > 0
begin(state, not restored and not ticket)
drop(state, state.over)
local labelled = string.format('%.0f/%.0f %s', takes, capacity, label)
if restored then
  ticket = restore_place(state, member, told_ticket, lease, labelled, is_forgotten)
elseif ticket then
  ticket = refresh_place(state, member, ticket, lease, labelled)
end
if restored then keep_line(state) end
hand_on(state)
local granted = state.grants[member]
-- A newcomer gets its units if no waiter is ahead of it, and they are free.
local is_behind = state.length > 0 and (state.blocked or state.more_to_scan or is_resting(state))
local may_enter = not ticket and not is_behind and not grace_left
if may_enter and (not state.capacity or state.capacity == capacity) and state.used + takes <= capacity then
  granted = grant(state, member, takes, capacity, lease, label)
end
-- The waiters ahead have another capacity.
local other = state.other or state.capacity
other_kind = not granted and other and other ~= capacity and mismatch(other)
if not granted and not other_kind then
  if state.waits and not ticket then
    add_place(state, member, next_number(state), lease, labelled)
    keep_line(state)
  elseif not state.waits and ticket then
    -- It may have been the one that did not fit.
    remove_place(state, member)
    hand_on(state)
  end
end
settle(state)
if state.waits and (ticket or was_free) and not granted then sweep(state) end
push(state)

if granted and granted.lease == lease then return granted.token end
if granted then return { 'granted', granted.token, granted.lease } end
if other_kind then return other_kind end
if not state.waits then return { 'busy', busy_for(state), more_to_do(state) } end
local rank = state.length == 0 and 0 or redis.call('ZRANK', line, member)
return { rank, recheck_in(state, rank), ticket or state.last, state.last, state.is_foreign and 1 or 0 }
