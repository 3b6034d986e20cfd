-- Locks the row of this lock ($1), and waits for it. Tells whether a transaction has locked the row since the one that wrote it, and when
-- the wait began. The swap behind it reads the row and the clock.
select coalesce(bool_or(l.was_locked), false), (date_part('epoch', statement_timestamp()) * 1000000)::bigint
from (select xmax <> 0 and xmax <> xmin as was_locked from fairlock.lock where name = $1 for update) l
