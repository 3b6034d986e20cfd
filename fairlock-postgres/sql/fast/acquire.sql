-- Takes a free lock for a new request: the rule `acquire`, where
--   the row is there, and no other transaction has it locked;
--   `state` is empty: nobody waits, and nothing is remembered;
--   the hold is over, or there is none;
--   the call is not over ($6), nor is a grace after a crash to be waited for ($7, or asked each time).
-- All else changes nothing here: a step answers it.
--
-- $1 name, $2 owner, $3 request, $4 lease, $5 label, $6 end of the call, $7 end of the grace, as the session knows it.
-- The token is the number that `OperationContext::next_number` would draw; the times are those of `LockRow`.
--
-- The clock is read before the row is looked at and locked. The write finds the row by its place in the table: a version that is newer
-- than the statement's snapshot is not found there, so nobody has changed the row since that look.
update fairlock.lock l
set rev = rev + 1, last = c.number, dead_at = greatest(c.now + $4::bigint, c.number) + 86400000000,
  h_owner = $2, h_request = $3, h_token = c.number, h_count = 1, h_since = c.now, h_ends = c.now + $4::bigint, h_label = $5
from (
  select *
  from (select fairlock.micros() as now offset 0) t,
    lateral (
      select ctid as at, greatest(last + 1, least(now, 4503599627370496)) as number
      from fairlock.lock l
      where name = $1
        and state = ''
        and (h_ends is null or h_ends <= now)
        and now <= $6::bigint
        and coalesce($7::bigint, fairlock.grace_ends()) <= now
      for update skip locked
    ) f
) c
where l.ctid = c.at
returning c.now, h_token, $4::bigint
