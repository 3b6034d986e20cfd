-- Reads the rows of these locks ($1) whose revision is not this one ($2), and locks none. Behind the columns of a row (`Loaded`) are its
-- name, its revision, and whether commits wait for a standby.
select l.last, l.h_owner, l.h_request, l.h_token, l.h_count, l.h_since, l.h_ends, l.h_label, l.heads, l.state,
  fairlock.micros(), fairlock.grace_ends(),
  l.name, l.rev, current_setting('synchronous_standby_names') <> ''
from unnest($1::bytea[], $2::bigint[]) a(name, rev)
join fairlock.lock l on l.name = a.name and l.rev <> a.rev
