-- Redisson's fair lock has its own line for this lock, which our hand-offs tell nothing. So that line is looked at after
-- every 16th grant of all units. If its first waiter is alive and subscribed, the free lock is reserved for it until its turn has
-- come, for a second at most. Only a client that asks for a fair lock names that line (option `r`).
--
-- Its keys are no KEYS, so that a user without rights to them can lock, too: that user names no line, or a look is refused.
-- A cluster does not know its subscribers: there a dead waiter is waited for until its time in that line is over.

-- @include lib/clock: now
-- @include lib/line: POLL_FOR, is_present, walk

-- Our turns are counted by letters, from `A` for none to `Q` for 16.
local OUR_LAST_TURN = 'Q'
local RESERVE_FOR = 1000
-- How often the first of our line looks meanwhile, and for how long after that while Redisson's owner holds the lock.
local POLL_EVERY = 20

local function take_turn(state)
  state.turn = string.char(string.byte(state.turn == OUR_LAST_TURN and 'A' or state.turn) + 1)
end

-- A key or channel of Redisson, as Redisson spells it.
local function redisson_name(state, prefix)
  return prefix .. (string.find(state.lock, '{', 1, true) and state.lock or '{' .. state.lock .. '}')
end

-- A look at Redisson's line. A refused one is an entry in the server's ACL LOG: so a script looks no more then, and says so in its
-- reply (`state.refused`), and the client doesn't let the next ones look.
local function look(state, ...)
  if not state.may_look or state.refused then return nil end
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' then return answer end
  state.refused = 2
  return nil
end

local function first_in_redisson(state)
  local first = look(state, 'LINDEX', redisson_name(state, 'redisson_lock_queue:'), 0)
  if not first then return nil end
  local timeout = look(state, 'ZSCORE', redisson_name(state, 'redisson_lock_timeout:'), first)
  if not timeout or tonumber(timeout) <= now then return nil end
  if state.knows_listeners then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', redisson_name(state, 'redisson_lock__channel:') .. ':' .. first)
    if answer.err == nil and tonumber(answer[2]) == 0 then return nil end
  end
  return first
end

-- The lock is free: whether it is reserved for Redisson's line, from before or from now on: if it has a waiter, and its turn is due,
-- since our 16th grant is over, or our line has ended soon after that line was seen. Looks only once a script. Writes nothing:
-- `settle` does.
local function reserve_for_redisson(state)
  -- A reservation ends once its waiter has left the head of Redisson's line: its turn has come. Each grant to our line ends it, too: the
  -- same waiter may have come, gone and asked again meanwhile, and would not be told of this time. More time than RESERVE_FOR is left
  -- only after the clock was set back.
  local left, waiter = state.reserved_until - now, state.reserved_for or ''
  local is_set = waiter ~= '' and left > 0 and left <= RESERVE_FOR
  local first = is_set and look(state, 'LINDEX', redisson_name(state, 'redisson_lock_queue:'), 0)
  state.is_reserved = is_set and (first == waiter or first == nil and (not state.may_look or state.refused ~= nil))
  local has_ended = state.length == 0 and state.knows_listeners and now < state.reserved_until + POLL_FOR
  local is_due = not state.is_reserved and (state.turn == OUR_LAST_TURN or has_ended)
  if is_due and state.redisson_first == nil then state.redisson_first = first_in_redisson(state) or false end
  if not is_due or not state.redisson_first then return state.is_reserved end
  state.is_reserved, state.reserved_until, state.reserved_for = true, now + RESERVE_FOR, state.redisson_first
  -- Counted like a grant, so that line is looked at again after 16 more.
  take_turn(state)
  state.wakes_redisson = true
  -- Our first in line is told to look: it has to know when the reservation ends, and to watch the waiter that comes.
  local function judge(member, place) return is_present(state, member, place) and 'stop' end
  state.next = state.length > 0 and walk(state, judge)
  return true
end

-- What a reply says of Redisson's line: 1 if it exists, 2 if the user may not look. Redisson tells its own line of the end of a
-- hold, but not ours. So while an owner of another discipline has the lock beside that line, our first in line looks just
-- between two of its turns (`state.polls_redisson`). How many of them pass until then is, on average, the time between two looks
-- divided by the gap between two turns, however long these last; with heartbeats alone it would take for ever.
local function check_redisson(state)
  state.polls_redisson = state.is_foreign and state.reserved_until > 0 and now < state.reserved_until + POLL_FOR
  if not state.may_look then return 0 end
  local left = look(state, 'PTTL', redisson_name(state, 'redisson_lock_queue:'))
  if not left then return 2 end
  state.polls_redisson = state.is_foreign and (state.polls_redisson or left ~= -2)
  return left ~= -2 and 1 or 0
end
