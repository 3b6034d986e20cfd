-- The note of a lock that is to be granted once in a period: it stands in the record's field `last`, see lib/format. From the first ask that
-- names a period on, each grant is noted, of whatever request. The note lives as long as the record: for twice the longest period at least,
-- from the last grant on, and from the last ask that was not declined.
--
-- No case applies to a lock with a note, nor to an ask with a condition.

-- @part
-- @include lib/clock: number

-- Notes a grant, or none (0), before the note is written. Returns how long the record has to live (ms): no shorter than it does.
local function note_grant(note, token)
  note.granted = math.max(note.granted, token)
  local from = note.is_asked and math.max(note.granted, number) or note.granted
  return math.max(redis.call('PTTL', record), note.keep + math.min(4e12, math.ceil((from - number) / 1000)))
end

-- @part
-- @include lib/clock: now, sequence_ttl
-- @include lib/format: last_text
-- @include lib/note: note_grant

-- Notes an ask for a lock that was not granted since the last multiple of a period (`e`), or a time ago (`a`), both in microseconds.
-- Returns the note; and the reply, if the lock was granted since then. Such an ask prolongs a note only if its period is longer than those
-- before: the note outlasts the period anyway. (Here the clock has whole milliseconds: a time ago is a millisecond longer at most.)
local function note_ask(note, kind, period)
  note = note or { granted = 0, keep = -1 }
  local since, keep = 1000 * now - period, math.min(4e12, math.ceil(2 * period / 1000))
  if kind == 'e' then since = 1000 * now - 1000 * now % math.max(1, period) end
  local is_declined = note.granted > 0 and note.granted >= since
  note.is_asked = not is_declined or keep > note.keep
  note.keep = math.max(note.keep, keep)
  return note, is_declined and { 'declined', 'granted', note.granted } or nil
end

-- Writes the note after an ask that changes nothing else.
local function write_note(last, note)
  if not note or not note.is_asked then return end
  local lives = math.max(sequence_ttl(last), note_grant(note, 0))
  local is_known = redis.call('PEXPIRE', record, lives) == 1
  redis.call('HSET', record, 'last', last_text(last, note))
  if not is_known then redis.call('PEXPIRE', record, lives) end
end
