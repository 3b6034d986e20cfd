-- Compare and swap: writes the row of a lock ($1) if it is still the row that was decided on, or is free as was guessed; else only reads it.
--
-- $2: the row's revision; or -1: `state` is empty, and the hold is over, or there is no row; or -2: only read.
-- $3, $4: the server's time of the decision, and until when it may have an effect. $5: the keys of those of the first four waiters that
-- are gone, as was decided; null: any. $6: the decision knows that others have locked the row since it was written. $7: the end of the
-- grace as the session knows it; $8: until when the decision knows of a grace. $9, $10: the setting that tells the messages behind the
-- swap that it was done, and its value. $11: by how much the hold may end too late, since the time of the decision may be so much too
-- early: as much of it as that time is not in the past by now is taken back. From $12 on the columns.
--
-- It waits for no row: a row that others have locked is passed over, and read. All conditions stand below the row lock, so what does not
-- match is not locked. The write finds the row by its place in the table: a version newer than the snapshot is not found there.
-- Revisions follow the clock: a server that has forgotten commits gives no forgotten revision again.
--
-- Behind the columns of a row (`Loaded`) are: who of the first four waiters is gone; whether commits wait for a standby; the revision;
-- whether the swap was done; and whether a transaction has locked the row since the one that wrote it.
with c as (
  select ctid as at
  from fairlock.lock
  where name = $1
    and (rev = $2::bigint or $2 = -1 and state = '' and (h_ends is null or h_ends <= $3) and last < $12)
    and (state = '' or xmax = 0 or xmax = xmin or $6)
    and fairlock.micros() between $3::bigint and $4::bigint
    and coalesce($7::bigint, fairlock.grace_ends()) <= $8::bigint
    and ($5::bigint[] is null or $5 = array(select k from unnest(heads[1:4]) k where pg_try_advisory_xact_lock_shared(k)))
  for update skip locked
), u as (
  update fairlock.lock l
  set rev = greatest(rev + 1, fairlock.micros()), last = $12, dead_at = $13, h_owner = $14, h_request = $15, h_token = $16,
    h_count = $17::bigint, h_since = $18, h_ends = $19::bigint - greatest($11::bigint - (fairlock.micros() - $3), 0), h_label = $20,
    heads = $21, state = $22
  from c
  where l.ctid = c.at
  returning l.*, case when $9::text is not null then set_config($9, $10, false) end
), i as (
  insert into fairlock.lock as l (name, rev, last, dead_at, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label, heads, state)
  select $1, fairlock.micros(), $12, $13, $14, $15, $16, $17::bigint, $18,
    $19::bigint - greatest($11::bigint - (fairlock.micros() - $3), 0), $20, $21, $22
  where $2 = -1 and fairlock.micros() between $3 and $4 and coalesce($7, fairlock.grace_ends()) <= $8
    and not exists (select from fairlock.lock where name = $1)
  on conflict do nothing
  returning l.*
)
select l.last, l.h_owner, l.h_request, l.h_token, l.h_count, l.h_since, l.h_ends, l.h_label, l.heads, l.state,
  fairlock.micros(), coalesce($7, fairlock.grace_ends()),
  array(select k from unnest(l.heads[1:4]) k where pg_try_advisory_xact_lock_shared(k)),
  current_setting('synchronous_standby_names') <> '',
  l.rev, l.is_done, l.was_locked
from (select) always
left join (
  select last, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label, heads, state, rev, true as is_done, false as was_locked from u
  union all
  select last, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label, heads, state, rev, true, false from i
  union all
  select last, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label, heads, state, rev, false, xmax <> 0 and xmax <> xmin
  from fairlock.lock
  where name = $1 and not exists (select from u) and not exists (select from i)
) l on true
