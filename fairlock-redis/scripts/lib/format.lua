-- The texts that are stored. No other file reads or writes these texts, but lib/life those of a grace. Numbers that don't change are
-- written as they were read.
--
-- This layout is number 1, which no text names. Each text of a later layout begins with `v` and its number, so this version takes none of
-- these texts for its own, but for `last` with a note. See `docs/versions.md` before you change what is written.

-- @part
-- A hold, in the lock's hash, as the field of its member: `<units> <token> <count> <heard> <label>`. `heard` is the end of
-- the grace in which the holder was last heard, or 0.

local function hold_text(units, token, count, heard, label)
  return units .. ' ' .. token .. ' ' .. count .. ' ' .. heard .. ' ' .. label
end

-- Units, token, count, `heard` and label; nil if the text is no hold.
local function read_hold(value)
  local units, token, count, heard, label = string.match(value or '', '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(units), tonumber(token), count, heard, label
end

-- @part
-- A place, in the record, as the field of its member: `<units> <capacity> <ticket> <deadline> <lease> <marks> <label>`. Two marks: `d`
-- (deaf: the client gets no messages now) or `-`; `n` (new: the client has not yet repeated this ticket, so it may not know the ticket)
-- or `-`.

local function place_text(units, capacity, ticket, deadline, lease, marks, label)
  return units .. ' ' .. capacity .. ' ' .. ticket .. ' ' .. deadline .. ' ' .. lease .. ' ' .. marks .. ' ' .. label
end

-- The place of a member; nil for a text or a member that can't be read, and for units that the lock can't have.
local function read_place(member, value)
  local units, capacity, ticket, deadline, lease, deaf, new, label =
    string.match(value or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) ([-d])([-n]) (.*)$')
  local client = units and string.match(member, '^([^:]*):[^:]*:[^:]*$')
  if not client or units == '0' or units ~= capacity and tonumber(units) > tonumber(capacity) then return nil end
  return { client = client, units = units, capacity = capacity, ticket = ticket, deadline = tonumber(deadline),
    lease = tonumber(lease), is_deaf = deaf == 'd', is_new = new == 'n', label = label }
end

-- @part
-- The field `queue` of the record: `<served> <pulse> <clock> <ttl> <rests>`, see lib/queue.

local function queue_text(served, pulse, clock, ttl, rests)
  return served .. ' ' .. pulse .. ' ' .. clock .. ' ' .. ttl .. ' ' .. rests
end

local function read_numbers(value)
  local served, pulse, clock, ttl, rests = string.match(value or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return served or '0', pulse, clock, ttl or '5000', rests or '0'
end

-- @part
-- The field `grant` of the record, of the disciplines Redisson and plain: `<owner>:<request> <token> <label>`.

local function grant_text(owner, request, token, label)
  return owner .. ':' .. request .. ' ' .. token .. ' ' .. label
end

-- The last grant as {owner, request, token, label}, empty for another text; with the last number of the sequence.
local function read_last_grant(record)
  local saved = redis.call('HMGET', record, 'grant', 'last')
  local last_grant = { string.match(saved[1] or '', '^(.-):([^: ]*) (%d+) (.*)$') }
  last_grant.last = saved[2]
  return last_grant
end

-- @part
-- The field `last` of the record: the last number; with a note (lib/queue) `v2 <last> <granted> <keep>`. This text is of layout 2, since a
-- version that knows no notes must not grant such a lock; no case takes it for a number below the clock.
-- @include lib/format: int
-- @include lib/clock: text

local function last_text(last, note)
  return note and 'v2 ' .. text(last) .. ' ' .. text(note.granted) .. ' ' .. text(note.keep) or text(last)
end

-- The last number, nil for another text; and the note: the last grant, 0 before the first one, and how long a grant is kept (ms).
local function read_last(value)
  local last, granted, keep = string.match(value or '', '^v2 (%d+) (%d+) (%d+)$')
  granted, keep = int(granted), int(keep)
  return int(last or value), granted and keep and { granted = granted, keep = keep } or nil
end

-- @part
-- A member is one request: `<client>:<owner>:<request>`. So no member has the name of another field.

-- Client, owner's number and request.
local function split_member(member)
  return string.match(member, '^([^:]*):([^:]*):([^:]*)$')
end

-- @part
-- The refusal of a text of a later layout; nil for any other text, and for a number with a note.
local function newer(stored)
  local layout = not string.find(stored or '', '^v2 %d+ %d+ %d+$') and string.match(stored or '', '^v(%d+)')
  return layout and redis.error_reply('LAYOUT ' .. layout) or nil
end

-- @part
-- Numbers as another program may have written them.

-- Greater numbers were written by another program, and are not exact.
local LAST_END = 4503599627370496

-- A number that is not negative; nil for another text, and for a number too large to be exact.
local function int(value)
  local found = tonumber(value)
  return found and found >= 0 and found < LAST_END and found or nil
end

-- The score of an end as a whole number: an operator may write `inf`, and another program a fraction.
local function end_of(score)
  return math.min(math.ceil(tonumber(score)), LAST_END)
end
