-- Locks the rows of these locks, and reads them. As it stands it waits for the rows that others have locked; `LOAD_FREE` in `sql.rs` is
-- the same with `skip locked`.
--
-- $1 names, $2 the end of the grace as the session knows it.
--
-- The clock is read above the row lock, so after the wait. Behind the columns of a row (`Loaded`) are: the keys of those of the first four
-- waiters that are gone; whether commits wait for a standby; of a row that was not loaded, whether it is there; when the statement
-- began; and whether a transaction has locked the row since the one that wrote it.
select l.last, l.h_owner, l.h_request, l.h_token, l.h_count, l.h_since, l.h_ends, l.h_label, l.heads, l.state,
  fairlock.micros(), coalesce($2::bigint, fairlock.grace_ends()),
  array(select k from unnest(l.heads[1:4]) k where pg_try_advisory_xact_lock_shared(k)),
  current_setting('synchronous_standby_names') <> '',
  l.name is null and exists(select from fairlock.lock there where there.name = a.name),
  (date_part('epoch', statement_timestamp()) * 1000000)::bigint,
  l.was_locked
from (select unnest($1::bytea[]) as name) a
left join lateral (
  select *, xmax <> 0 and xmax <> xmin as was_locked
  from fairlock.lock l
  where l.name = a.name
  for update
) l on true
