-- Deletes the rows in 16 pages of the table, from page $1 on, that nobody has used for a day. Tells how many those were, and how many
-- pages the table has. No page has more than 291 rows. A row that is in use is skipped.
with gone as (
  delete from fairlock.lock
  where ctid in (
    select ctid
    from fairlock.lock
    where ctid = any(array(
        select format('(%s,%s)', page, item)::tid from generate_series($1::bigint, $1 + 15) page, generate_series(1, 291) item
      ))
      and dead_at <= fairlock.micros()
    for update skip locked
  )
  returning 1
)
select count(*), pg_relation_size('fairlock.lock') / current_setting('block_size')::bigint from gone
