-- Reads the row of a lock ($1), and locks nothing; nulls, the clock and the grace, if there is none. $2: the end of the grace as the
-- session knows it.
--
-- Behind the columns of a row (`Loaded`) are: who of the first four waiters is gone; whether commits wait for a standby; the revision; and
-- whether a transaction has locked the row since the one that wrote it.
select l.last, l.h_owner, l.h_request, l.h_token, l.h_count, l.h_since, l.h_ends, l.h_label, l.heads, l.state,
  fairlock.micros(), coalesce($2::bigint, fairlock.grace_ends()),
  array(select k from unnest(l.heads[1:4]) k where pg_try_advisory_xact_lock_shared(k)),
  current_setting('synchronous_standby_names') <> '', l.rev, l.xmax <> 0 and l.xmax <> l.xmin
from (select) always left join fairlock.lock l on l.name = $1
