-- Where a session sits: this differs from one start of a server to the next, and from database to database, since messages stay in one.
-- And whether nothing can be written there.
select concat_ws(' ', extract(epoch from pg_postmaster_start_time()), (select oid from pg_database where datname = current_database())),
  current_setting('transaction_read_only') = 'on'
