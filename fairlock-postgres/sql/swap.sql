-- Compare and swap: writes the row of a lock ($1) if it is still the row that was decided on, or is free as was guessed. `insert.sql` goes
-- before it where there may be no row, `read.sql` behind it: three small plans start in half the time of one that does all.
--
-- $2: the row's revision; or below 0: `state` is empty, and the hold is over. $3, $4: the server's time of the decision, and until when it
-- may have an effect. $5: the keys of those of the first four waiters that are gone, as was decided; null: any. $6: the decision knows
-- that others have locked the row since it was written. $7: the end of the grace as the session knows it; $8: until when the decision
-- knows of a grace. $9, $10: the setting that tells the messages behind the swap that it was done, and its value. $11: by how much the
-- hold may end too late, since the time of the decision may be so much too early: as much of it as that time is not in the past by now is
-- taken back. From $12 on the columns.
--
-- It waits for no row: a row that others have locked is passed over. All conditions stand below the row lock, so what does not match is
-- not locked. The write finds the row by its place in the table: a version newer than the snapshot is not found there. Revisions follow
-- the clock: a server that has forgotten commits gives no forgotten revision again. A swap that was done returns a row.
with c as (
  select ctid as at
  from fairlock.lock
  where name = $1
    and (rev = $2::bigint or $2 < 0 and state = '' and (h_ends is null or h_ends <= $3) and last < $12)
    and (state = '' or xmax = 0 or xmax = xmin or $6)
    and fairlock.micros() between $3::bigint and $4::bigint
    and coalesce($7::bigint, fairlock.grace_ends()) <= $8::bigint
    and ($5::bigint[] is null or
      (heads[1] is null or pg_try_advisory_xact_lock_shared(heads[1]) = (heads[1] = any($5))) and
      (heads[2] is null or pg_try_advisory_xact_lock_shared(heads[2]) = (heads[2] = any($5))) and
      (heads[3] is null or pg_try_advisory_xact_lock_shared(heads[3]) = (heads[3] = any($5))) and
      (heads[4] is null or pg_try_advisory_xact_lock_shared(heads[4]) = (heads[4] = any($5))))
  for update skip locked
)
update fairlock.lock l
set rev = greatest(rev + 1, fairlock.micros()), last = $12, dead_at = $13, h_owner = $14, h_request = $15, h_token = $16,
  h_count = $17::bigint, h_since = $18, h_ends = $19::bigint - greatest($11::bigint - (fairlock.micros() - $3), 0), h_label = $20,
  heads = $21, state = $22
from c where l.ctid = c.at
returning case when $9::text is not null then set_config($9, $10, false) end
