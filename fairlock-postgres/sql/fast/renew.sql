-- Prolongs a hold that stands in columns, also of a lock with a queue (a holder hands nothing on): the rule `renew`, where
--   the row is there, and no other transaction has it locked;
--   the lock's state, if it has one, is of this layout (`LAYOUT` in fairlock-rules);
--   this hold lasts.
-- All else changes nothing here: a step answers it.
--
-- $1 name, $2 owner, $3 request, $4 token, $5 hold count, $6 lease. The write finds the row as that of `acquire.sql` does. The last
-- column says whether there may be a queue.
update fairlock.lock l
set rev = rev + 1, h_count = $5::bigint, h_ends = greatest(h_ends, c.now + $6::bigint),
  dead_at = greatest(dead_at, c.now + $6::bigint + 86400000000)
from (
  select *
  from (select fairlock.micros() as now offset 0) t,
    lateral (
      select ctid as at
      from fairlock.lock l
      where name = $1
        and h_owner = $2
        and h_request = $3::bigint
        and h_token = $4
        and h_ends > now
        and substring(state from 1 for 1) in ('', '\x01')
      for update skip locked
    ) f
) c
where l.ctid = c.at
returning c.now, state <> ''
