-- What `doctor` asks the server: a query for each topic, whose answer begins with its verdict.

-- role
select case
  when pg_is_in_recovery() then 'unsafe: a standby, which takes no writes: name the primary, or all hosts (postgres://user@host1,host2/database)'
  when current_setting('transaction_read_only') = 'on' then format('unsafe: default_transaction_read_only is on, so nothing can be written: '
    'alter role %I set default_transaction_read_only = off, or where else it is set', current_user)
  else 'good: it takes writes' end

-- version
select case when current_setting('server_version_num')::int >= 130000 then 'good: ' || current_setting('server_version')
  else format('unsafe: its version is %s; update it to 13 or later', current_setting('server_version')) end

-- commits
select case
  when current_setting('fsync') = 'off' then 'unsafe: fsync is off: a crash of the machine can destroy the database; set it to on'
  when level = 'off' then 'note: synchronous_commit is off: a crash of the server forgets the last 0.6 s of what it said, so it grants no '
    'lock for 30 s after one, and no lease is longer; set it to on, or see to it that all users of the locks have it off'
  when n = 0 and current_setting('synchronous_standby_names') <> '' then 'note: each commit waits for a synchronous standby '
    '(synchronous_standby_names), and none is connected'
  when n = 0 then format('good: synchronous_commit is %s; no standby is connected', level)
  when hidden > 0 then format('note: %s standbys, and this user may not see whether they are synchronous: grant pg_read_all_stats to %I', n, current_user)
  when sync = 0 then format('note: %s standbys, and none is synchronous: a fail-over can forget the last commits, and two clients can hold a lock then; '
    'set synchronous_standby_names', n)
  when level in ('local', 'remote_write') then format('note: synchronous_commit is %s: a standby need not have on its disk what was committed, so a '
    'fail-over can forget it; set it to on', level)
  else format('good: synchronous_commit is %s; %s of %s standbys are synchronous', level, sync, n) end
from (select current_setting('synchronous_commit') as level, count(*) n, count(*) filter (where sync_state in ('sync', 'quorum')) sync,
  count(*) filter (where sync_state is null) hidden from pg_stat_replication) r

-- isolation
select case level when 'read committed' then 'good: read committed' else format('note: the default is %s: calls that meet each other are refused (40001) '
  'and repeated; alter role %I set default_transaction_isolation = ''read committed''', level, current_user) end
from (select current_setting('default_transaction_isolation') as level) s

-- connections
select format(case when n >= 10 then 'good: %s are left' else 'note: %s are left, and a process takes up to 9: raise max_connections, or the limit '
  'of the user or the database, or lower `connections`' end, n)
from (with used as (select datname, usename from pg_stat_activity where datname is not null)
  select greatest(0, least(
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
      - coalesce(current_setting('reserved_connections', true)::int, 0) - (select count(*) from used),
    (select datconnlimit - (select count(*) from used where used.datname = d.datname) from pg_database d
      where datname = current_database() and datconnlimit >= 0),
    (select rolconnlimit - (select count(*) from used where usename = rolname) from pg_roles where rolname = current_user and rolconnlimit >= 0)
  )) n) s

-- listeners
-- Those of fairlock hold an advisory lock; another's is seen as long as LISTEN was its last statement.
select format(case when n <= 50 then 'good: %s sessions listen in this database' else 'note: %s sessions listen in this database, and each message wakes '
  'all of them: keep locks in a separate database, and use one client for a process' end, n)
from (select count(*) n from (
  select pid from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())
  union select pid from pg_stat_activity where datname = current_database() and query ~* '^[[:space:]]*listen[[:>:]]') s) s

-- snapshots
-- Old by time; by transactions, where this user may not see the time.
select coalesce((select format('note: %s has kept a snapshot of this database for %s: hand-offs get slower and slower behind it; end it (%s), or keep '
    'locks in a separate database of this server', what,
    coalesce(extract(epoch from clock_timestamp() - since)::bigint || ' s', age(x) || ' transactions'), ending)
  from (
    select format('session %s of %s (%s)', pid, usename, coalesce(state, 'its state is hidden')) what,
      format('select pg_terminate_backend(%s)', pid) ending, xact_start since, coalesce(backend_xmin, backend_xid) x from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type is distinct from 'autovacuum worker'
    union all select format('prepared transaction %s of %s', gid, owner), format('rollback prepared %L', gid), prepared, transaction
    from pg_prepared_xacts where database = current_database()) s
  where x is not null and (since < clock_timestamp() - interval '5 s' or since is null and age(x) > 10000) order by age(x) desc, since limit 1),
  'good: none in this database is older than 5 s')

-- slots
select coalesce((select format(case when active then 'note: %s keeps old rows for its own queries (hot_standby_feedback), of %s transactions by now: '
    'an old query there slows hand-offs as one here does; set that to off there'
    else 'note: %s is not in use: it keeps the log until the disk is full, and old rows (%s transactions); drop it (pg_drop_replication_slot)' end,
    name, coalesce(age(x), 0))
  from (select 'slot ' || slot_name as name, active, xmin x from pg_replication_slots
    union all select 'standby ' || application_name, true, backend_xmin from pg_stat_replication) s
  where x is not null or not active order by active, age(x) desc nulls last limit 1), 'good: none keeps old rows')

-- autovacuum
select case
  when current_setting('autovacuum') = 'off' or current_setting('track_counts') = 'off' then 'note: off: dead rows pile up, and hand-offs get slower; '
    'set autovacuum and track_counts to on'
  when exists (select from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = 'fairlock' and relname = 'lock'
    and array_to_string(reloptions, ' ') ~ 'autovacuum_enabled=(f|of|n|0)') then 'note: off for the locks: dead rows pile up, and hand-offs get slower; '
    'alter table fairlock.lock reset (autovacuum_enabled)'
  else 'good: on' end

-- rights
with f as (select oid from pg_namespace where nspname = 'fairlock'), missing as (
  select 'usage on schema fairlock' what from f where not has_schema_privilege(oid, 'usage')
  union all select format('%s on fairlock.%s', p, relname) from pg_class c join f on f.oid = relnamespace,
    unnest(case relname when 'lock' then '{select,insert,update,delete}'::text[] else '{select}' end) p
  where relname in ('lock', 'meta') and not has_table_privilege(c.oid, p)
  union all select format('execute on function %s', p.oid::regprocedure) from pg_proc p join f on f.oid = pronamespace
  where not has_function_privilege(p.oid, 'execute'))
select coalesce('unsafe: missing: ' || string_agg(format('grant %s to %I', what, current_user), '; '), 'good: all of them') from missing

-- rows
-- How many are over is counted in some thousand pages.
select format(case when over > 100000 and over > live / 2 then 'note: %s live, of which about %s are over and not deleted yet, %s dead, %s %% of the '
    'updates are HOT: programs that use locks delete them as they run: none does, or their user may not'
  when updates > 1000 and hot < 90 then 'note: %s live (%s over), %s dead, %s %% of the updates are HOT: drop indexes beside the key, and leave '
    'fillfactor at 50'
  when dead > 10000 and dead > 10 * live then 'note: %s live (%s over), %s dead, %s %% of the updates are HOT: vacuum fairlock.lock, and find what keeps old rows'
  else 'good: %s live (%s over), %s dead, %s %% of the updates are HOT' end, live, over, dead, hot)
from (select n_live_tup live, n_dead_tup dead, n_tup_upd updates, coalesce(n_tup_hot_upd * 100 / nullif(n_tup_upd, 0), 100) hot
  from pg_stat_user_tables where schemaname = 'fairlock' and relname = 'lock') s,
  (select (count(*) filter (where dead_at <= fairlock.micros()) * greatest(1, coalesce(max(pages), 0) / 2000.0))::bigint as over
  from (select pg_relation_size('fairlock.lock') / current_setting('block_size')::bigint as pages offset 0) p, lateral (select dead_at
  from fairlock.lock tablesample system (least(100, 200000.0 / greatest(1, pages)))) l) o
