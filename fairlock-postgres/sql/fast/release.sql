-- Ends the hold of a lock without a queue: the rule `release`, where
--   the row is there, and no other transaction has it locked;
--   `state` is empty: nobody waits, and nothing is remembered;
--   this hold lasts.
-- All else changes nothing here: a step answers it.
--
-- $1 name, $2 owner, $3 request, $4 token. The write finds the row as that of `acquire.sql` does.
update fairlock.lock l
set rev = rev + 1, dead_at = last + 86400000000,
  h_owner = null, h_request = null, h_token = null, h_count = null, h_since = null, h_ends = null, h_label = null
from (
  select *
  from (select fairlock.micros() as now offset 0) t,
    lateral (
      select ctid as at
      from fairlock.lock l
      where name = $1
        and state = ''
        and h_owner = $2
        and h_request = $3::bigint
        and h_token = $4
        and h_ends > now
      for update skip locked
    ) f
) c
where l.ctid = c.at
returning c.now
