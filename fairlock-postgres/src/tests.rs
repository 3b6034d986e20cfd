//! What the conformance suite can't know: columns, layouts, rows, and other sessions.

mod doctor;
mod periods;
mod windows;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fairlock_core::backend::{Acquired, Backend, BackendError, BackendErrorKind, LockId, Renew, only};
use fairlock_core::{ClientId, FencingToken, LockKind, LockName, OwnerId};
use fairlock_rules::Moment;
use fairlock_tests::{PostgresServer, eventually};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use crate::command::Command;
use crate::net::address::{Address, TlsConfig};
use crate::net::statement::{LIMITS, SWEEP};
use crate::net::{Connection, Failure, Statement, open};
use crate::row::moment;
use crate::step::ask_one;
use crate::test_server::{SERVER, new_database};
pub(crate) use crate::test_values::*;
use crate::{PostgresBackend, PostgresBuilder};

pub(crate) fn session(url: &str) -> Connection {
    open(&Address::parse(url, &TlsConfig::default()).unwrap(), soon()).unwrap()
}

/// For a test that is not about time: no call fails because the machine stands still for a second.
pub(crate) fn patient(url: &str) -> PostgresBuilder {
    PostgresBackend::builder(url).connect_timeout(SECOND * 10).response_timeout(SECOND * 10)
}

/// A backend with one connection, and a session beside it.
pub(crate) fn stage() -> (PostgresBackend, Connection) {
    let url = new_database();
    (patient(&url).connections(1).connect().unwrap(), session(&url))
}

/// From now on a step on the only connection waits for its row for so long, and not for half a second, in which a busy machine may do
/// nothing.
pub(crate) fn wait_for_rows(backend: &PostgresBackend, time: Duration) {
    let set = format!("set lock_timeout = {}", time.as_millis());
    backend.0.pool.lend(soon(), |con| con.script(&set, soon())).unwrap();
}

/// The number that this query has.
pub(crate) fn number(con: &mut Connection, sql: &str) -> i64 {
    con.row(Statement::made_up(sql), soon()).unwrap().number(0).unwrap()
}

/// From now on the clock of this database stands still. Every session reads what it was set to last, committed or not. It is years behind
/// the system's clock, by which a load began: else the difference would count as a wait for the row.
pub(crate) const STANDING_CLOCK: &str = "create sequence fairlock.clock start 1700000000000000; \
     create or replace function fairlock.micros() returns bigint language sql volatile \
     as $$ select last_value from fairlock.clock $$";

/// Moves that clock. A store that does not hear the new time would take a later one for the end of a wait at a locked row.
pub(crate) fn pass(con: &mut Connection, time: Duration) -> Moment {
    let moves =
        format!("select setval('fairlock.clock', last_value + {}) from fairlock.clock", time.as_micros());
    moment(number(con, &moves))
}

/// How many round trips there were.
pub(crate) fn trips(backend: &PostgresBackend) -> u64 {
    let pool = &backend.0.pool;
    pool.lend(pool.deadline(), |con| Ok(con.trips)).unwrap()
}

/// The session's process.
pub(crate) fn process(con: &mut Connection) -> Result<i32, Failure> {
    con.row(Statement::made_up("select pg_backend_pid()"), soon())?.count(0)
}

fn process_of(backend: &PostgresBackend) -> i32 {
    backend.0.pool.lend(soon(), process).unwrap()
}

pub(crate) fn take(backend: &PostgresBackend, lock: &LockId, owner: &OwnerId) -> FencingToken {
    match only(backend.acquire(&[ask(lock, owner, 1)])).unwrap() {
        Acquired::Granted { token, .. } => token,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_or_newer_layout_is_refused_in_words() {
    let url = SERVER.new_empty_database();
    let cause = || PostgresBackend::connect(&url).unwrap_err().to_string();
    let database = url.rsplit('/').next().unwrap();
    let missing = format!("database `{database}` on {} has no fairlock tables: run ", SERVER.address());
    assert!(cause().contains(&missing) && cause().contains("fairlock migrate --postgres URL"), "{}", cause());
    PostgresBackend::migrate(&url).unwrap();
    PostgresBackend::migrate(&url).unwrap(); // a repeat
    session(&url).script("drop role if exists nobody; create role nobody login", soon()).unwrap();
    let denied = PostgresBackend::connect(&url.replace("fairlock@", "nobody@")).unwrap_err().to_string();
    let right = "user nobody lacks a right (`grant usage on schema fairlock to nobody`); `fairlock doctor";
    assert!(denied.contains(right), "{denied}");
    patient(&url).connect().unwrap();
    let mut con = session(&url);
    con.script("update fairlock.meta set layout = 2", soon()).unwrap();
    patient(&url).connect().unwrap(); // which this one may still write
    con.script("update fairlock.meta set least_client = 2", soon()).unwrap();
    assert!(cause().contains("layout 2") && cause().contains("newer version"), "{}", cause());
    let refused = PostgresBackend::migrate(&url).unwrap_err().to_string();
    assert!(refused.contains("layout 2"), "{refused}");
}

/// A server that is not there, a setting whose time is over, and a schema that the migration can't complete.
#[test]
fn errors_of_the_way_name_product_phase_and_setting() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = |port| format!("postgres://fairlock@127.0.0.1:{port}/x");
    let port = silent.local_addr().unwrap().port();
    let connect = |url: &str| {
        let builder = PostgresBackend::builder(url).connect_timeout(SECOND / 20);
        builder.connect().unwrap_err().to_string()
    };
    let late = format!("PostgreSQL at 127.0.0.1:{port}, connecting: no answer within 50ms (connect_timeout)");
    assert!(connect(&url(port)).contains(&late), "{}", connect(&url(port)));
    let nobody = connect(&url(1));
    assert!(nobody.contains("PostgreSQL at 127.0.0.1:1, connecting: "), "{nobody}");
    assert!(nobody.contains("is PostgreSQL running there?"), "{nobody}");
    let url = SERVER.new_empty_database();
    session(&url).script("create schema fairlock; create table fairlock.lock (x int)", soon()).unwrap();
    let foreign = PostgresBackend::migrate(&url).unwrap_err().to_string();
    assert!(foreign.contains("another program's") && !foreign.contains("run `fairlock"), "{foreign}");
}

#[test]
fn what_reads_asks_a_pooler_to_send_it_where_writes_go() {
    let mut con = session(&new_database());
    for said in ["select", "with one as (select 1) select"] {
        let sql = format!("{said} query from pg_stat_activity where pid = pg_backend_pid()");
        let row = con.row(Statement::made_up(sql), soon()).unwrap();
        assert!(row.text(0).unwrap().starts_with("/*NO LOAD BALANCE*/"), "{row:?}");
    }
}

/// Statements stay prepared when a new statement met a locked table, and the error says that it may be one.
#[test]
fn statements_stay_prepared_after_a_locked_table() {
    let url = new_database();
    let one = patient(&url).connections(1).response_timeout(SECOND * 5);
    let (backend, mut con) = (one.connect().unwrap(), session(&url));
    let (locks, ann) = ([lock("a"), lock("b")], OwnerId::new("ann:1"));
    take(&backend, &lock("first"), &ann); // which tells the clock
    con.script("begin; lock table fairlock.lock", soon()).unwrap();
    let asks = locks.each_ref().map(|lock| ask(lock, &ann, 1));
    let names_it = |error: &BackendError| error.message().contains("or the table (LOCK TABLE, VACUUM FULL)");
    assert!(backend.acquire(&asks).iter().all(|answer| answer.as_ref().is_err_and(names_it)));
    con.script("rollback", soon()).unwrap();
    assert!(backend.0.pool.lend(soon(), |con| Ok(con.is_own_session())).unwrap());
    assert!(backend.acquire(&asks).iter().all(Result::is_ok));
}

/// Those of tables show that it was none. From version 17 on all kinds are reset by one call.
#[test]
fn statistics_that_an_operator_resets_are_no_crash() {
    let server = PostgresServer::start();
    let mut con = session(&server.url());
    let age = "select (extract(epoch from clock_timestamp()) - ((pg_control_system()).system_identifier >> 32))::bigint";
    eventually("initdb was some time ago", || number(&mut con, age) > 10);
    con.script("set synchronous_commit = off; select pg_stat_reset_shared('bgwriter')", soon()).unwrap();
    assert_eq!(number(&mut con, "select fairlock.grace_ends()"), 0);
    con.script("analyze fairlock.meta", soon()).unwrap();
    let known = "select count(*) from pg_stat_all_tables where last_analyze is not null";
    eventually("the statistics of a table are there", || number(&mut con, known) > 0);
    let before = number(&mut con, "select fairlock.micros()");
    let resets = match number(&mut con, "select current_setting('server_version_num')::bigint") {
        170_000.. => "select pg_stat_reset_shared()",
        _ => "select pg_stat_reset_shared('bgwriter'); select pg_stat_reset_shared('archiver')",
    };
    con.script(resets, soon()).unwrap();
    let at = "select (extract(epoch from least(pg_stat_get_bgwriter_stat_reset_time(), stats_reset)) * 1000000)::bigint from pg_stat_archiver";
    eventually("all are reset", || number(&mut con, at) >= before);
    assert_eq!(number(&mut con, "select fairlock.grace_ends()"), 0);
}

/// Its clients may have longer leases than a server that forgets what it has granted allows.
#[test]
fn a_backend_whose_commits_are_synchronous_keeps_them_so() {
    let url = new_database();
    let backend = patient(&url).connect().unwrap();
    assert_eq!(backend.longest_lease(), None);
    let mut con = session(&url);
    let database = url.rsplit('/').next().unwrap();
    let others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    con.script(&format!("alter database {database} set synchronous_commit = off; {others}"), soon()).unwrap();
    let level = |backend: &PostgresBackend| {
        let pool = &backend.0.pool;
        let asked = pool.lend(soon(), |con| {
            let level = Statement::made_up("select current_setting('synchronous_commit')");
            let flight: Vec<_> = pool.sync(con).into_iter().chain([level]).collect();
            Ok(con
                .flight(&flight, soon())?
                .last()
                .and_then(|rows| Some(rows.first()?.text(0).ok()?.to_owned())))
        });
        asked.ok().flatten()
    };
    eventually("it has a session again", || level(&backend).is_some());
    assert_eq!(level(&backend).as_deref(), Some("on"));
    assert_eq!(process_of(&backend), process_of(&backend), "which it keeps");
    let later = patient(&url).connect().unwrap();
    assert_eq!((later.longest_lease(), level(&later).as_deref()), (Some(LEASE), Some("off")));
    // A new session tells that they are by now. From then on the transactions of the others ask for that, also one that has begun.
    con.script(&format!("alter database {database} set synchronous_commit = on"), soon()).unwrap();
    let pool = &later.0.pool;
    let asks = pool.lend(soon(), |con| {
        pool.ask(Statement::made_up("select 1"), soon())?;
        Ok(pool.sync(con).is_some())
    });
    assert!(asks.unwrap());
    assert_eq!(later.longest_lease(), None);
    let levels: Vec<_> = (0..2).map(|_| pool.lend(soon(), |_| Ok(level(&later))).unwrap()).collect();
    assert!(levels.iter().all(|level| level.as_deref() == Some("on")), "{levels:?}");
}

#[test]
fn a_sweep_learns_whether_longer_leases_are_safe_by_now() {
    let url = new_database();
    let (mut con, database) = (session(&url), url.rsplit('/').next().unwrap());
    let mut set = |level| {
        con.script(&format!("alter database {database} set synchronous_commit = {level}"), soon()).unwrap();
    };
    set("off");
    let backend = patient(&url).connect().unwrap();
    let first = process_of(&backend);
    for (level, longest) in [("off", Some(LEASE)), ("on", None)] {
        set(level);
        backend.0.sweep().unwrap();
        assert_eq!(backend.longest_lease(), longest);
    }
    let second = process_of(&backend);
    backend.0.sweep().unwrap(); // there is nothing to be learned any more
    assert!(first != second && process_of(&backend) == second, "a caller finds the new session open");
}

#[test]
fn every_line_of_the_log_is_written_under_guard() {
    let sources = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let mut found = 0;
    for path in sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let text: String = std::fs::read_to_string(&path).unwrap().split_whitespace().collect();
        for (at, _) in text.match_indices(&format!("{}target:", "!(")) {
            let line = text[..at].trim_end_matches(char::is_alphabetic);
            let is_guarded =
                ["log_safely(||log::", "log_safely(||{log::"].iter().any(|begin| line.ends_with(begin));
            assert!(is_guarded, "{}", path.display());
            found += 1;
        }
    }
    assert!(found > 2, "{found}");
}

/// Of many that migrate at once none fails, and a migration that waits for too long says so.
#[test]
fn many_migrate_at_once_and_none_fails() {
    let url = SERVER.new_empty_database();
    let mut first = session(&url);
    let takes_it = "begin; select pg_advisory_xact_lock(7378700441894417)";
    first.script(takes_it, soon()).unwrap();
    let error = patient(&url).migrate().unwrap_err().to_string();
    assert!(error.contains("for more than 2 s"), "{error}");
    first.script("commit", soon()).unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| patient(&url).migrate())).collect();
        all.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
    // Where the tables are there nothing waits for those that use them.
    first.script("begin; lock table fairlock.lock", soon()).unwrap();
    patient(&url).migrate().unwrap();
}

#[test]
fn locks_in_use_are_listed_page_by_page() {
    let ((backend, mut con), ann) = (stage(), OwnerId::new("ann:1"));
    con.script(
        "insert into fairlock.lock (name, last, h_owner, h_request, h_token, h_count, h_since, h_ends, h_label) select \
         convert_to(format('held:%s', lpad(n::text, 4, '0')), 'UTF8'), n, 'a:1', 1, n, 1, fairlock.micros(), fairlock.micros() + 1e9, \
         '' from generate_series(1, 1001) n; insert into fairlock.lock (name) values ('unused'), ('\\xff')",
        soon(),
    )
    .unwrap();
    let (fair, pool) = (lock("waited for"), LockName::new("pool").unwrap());
    take(&backend, &fair, &ann);
    only(backend.acquire(&[ask(&fair, &OwnerId::new("bob:1"), 2)])).unwrap();
    take(&backend, &LockId::new(pool, LockKind::Semaphore { permits: 2 }), &ann);
    let all = backend.locks(None).unwrap();
    assert!(all.len() == 1003 && all.is_sorted_by_key(|(name, _)| name.as_str().to_owned()));
    assert_eq!(backend.locks(Some("held:000[^0]")).unwrap().len(), 9);
    let [(name, state), (other, waited)] = &backend.locks(Some("[pw]*")).unwrap()[..] else { panic!("two") };
    assert_eq!((name.as_str(), state.capacity, state.taken()), ("pool", Some(2), 1));
    let holder = waited.holder().unwrap().owner.as_str();
    assert_eq!((other.as_str(), holder, waited.waiting()), ("waited for", "ann:1", 1));
    assert_eq!(waited.queue.len(), 1, "the first waiter");
}

#[test]
fn a_state_that_this_version_can_not_read_is_left_alone() {
    let ((backend, mut con), lock, ann) = (stage(), lock("x"), OwnerId::new("ann:1"));
    take(&backend, &lock, &ann);
    con.script(r"update fairlock.lock set rev = rev + 1, state = '\x04'", soon()).unwrap();
    let error = only(backend.acquire(&[ask(&lock, &ann, 2)])).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unsupported);
    assert!(error.message().contains("layout 4"), "{error}");
    assert!(!error.message().contains("lock `x`"), "core names it: {error}");
    assert_eq!(number(&mut con, r"select count(*) from fairlock.lock where state = '\x04'"), 1);
}

#[test]
fn a_damaged_row_fails_alone() {
    let ((backend, mut con), [ann, bob]) = (stage(), ["ann:1", "bob:1"].map(OwnerId::new));
    let [whole, damaged] = ["whole", "damaged"].map(lock);
    for lock in [&whole, &damaged] {
        take(&backend, lock, &bob);
    }
    con.script("update fairlock.lock set rev = rev + 1, heads = '{null}' where name = 'damaged'", soon())
        .unwrap();
    let answers = backend.acquire(&[ask(&whole, &ann, 2), ask(&damaged, &ann, 2)]);
    assert!(matches!(answers[..], [Ok(Acquired::Queued { .. }), Err(_)]), "{answers:?}");
}

/// As a client does that has stopped between its two trips.
#[test]
fn a_name_that_another_is_inserting_holds_up_no_other_lock() {
    let ((backend, mut con), [ann, bob]) = (stage(), ["ann:1", "bob:1"].map(OwnerId::new));
    let [held, new] = ["held", "new"].map(lock);
    take(&backend, &held, &bob);
    con.script("begin; insert into fairlock.lock (name) values ('new')", soon()).unwrap();
    let answers = backend.acquire(&[ask(&held, &ann, 2), ask(&new, &ann, 2)]);
    let [Ok(Acquired::Queued { .. }), Err(blocked)] = &answers[..] else { panic!("{answers:?}") };
    assert!(blocked.message().contains("55P03"), "{blocked}");
}

#[test]
fn the_clock_of_a_step_is_read_after_its_wait_for_the_row() {
    let ((backend, mut con), lock, ann) = (stage(), lock("x"), OwnerId::new("ann:1"));
    only(backend.release(&[hold(&lock, &ann, take(&backend, &lock, &ann))])).unwrap();
    let (store, ask) = (&backend.0, ask(&lock, &ann, 2));
    wait_for_rows(&backend, SECOND * 10);
    con.script("begin; select from fairlock.lock for update", soon()).unwrap();
    let number =
        |con: &mut Connection, sql| con.row(Statement::new(sql, []), soon()).unwrap().number(0).unwrap();
    let (granted, waited_at) = std::thread::scope(|scope| {
        let granted = scope.spawn(|| ask_one(store, &lock.name, Command::acquire(&ask)));
        let waits =
            "select count(*) from pg_locks where not granted and transactionid = pg_current_xact_id()::xid";
        eventually("it waits for the row", || number(&mut con, waits) > 0);
        let waited_at = number(&mut con, "select fairlock.micros()");
        con.script("commit", soon()).unwrap();
        (granted.join().unwrap(), waited_at)
    });
    assert!(matches!(granted, Ok(Acquired::Granted { .. })), "{granted:?}");
    assert!(number(&mut con, "select h_since from fairlock.lock") >= waited_at);
}

/// A session that hears nothing of its client for seconds is ended by TCP.
#[test]
fn tcp_ends_a_session_that_hears_nothing_for_seconds() {
    let backend = patient(&new_database()).connect().unwrap();
    for (name, value) in [
        ("tcp_user_timeout", "5000"),
        ("tcp_keepalives_idle", "4"),
        ("tcp_keepalives_interval", "1"),
        ("tcp_keepalives_count", "3"),
    ] {
        let show = Statement::made_up(format!("select current_setting('{name}')"));
        let row = backend.0.pool.ask(show, soon()).unwrap();
        assert_eq!(row[0].text(0).unwrap(), value, "{name}"); // as TCP says
    }
}

/// No other time-out runs while the server waits for the rest of it; before version 17 only TCP ends that.
#[test]
fn a_flight_without_an_end_keeps_its_row_for_an_attempt() {
    let url = new_database();
    let (backend, mut con) = (PostgresBackend::connect(&url).unwrap(), session(&url));
    con.script("insert into fairlock.lock (name) values ('x')", soon()).unwrap();
    let mut out = BytesMut::new();
    let parameters = [("user", "fairlock"), ("database", url.rsplit('/').next().unwrap())];
    frontend::startup_message(parameters, &mut out).unwrap();
    let whole = backend.0.pool.attempt_ttl().as_millis().to_string();
    let limits = [("$1", "'1000'"), ("$2", "'500'"), ("$3", &format!("'{whole}'")), ("$4", "false")];
    let limits = limits.iter().fold(LIMITS.clone(), |sql, (at, value)| sql.replace(at, value));
    frontend::query(&limits, &mut out).unwrap();
    for sql in ["begin", "select from fairlock.lock where name = 'x' for update", "select"] {
        frontend::parse("", sql, [], &mut out).unwrap();
        frontend::bind("", "", [], [(); 0], |(), _| Ok(IsNull::Yes), [], &mut out).ok().unwrap();
        frontend::execute("", 0, &mut out).unwrap();
    }
    let mut half = TcpStream::connect(SERVER.address()).unwrap();
    half.write_all(&out[..out.len() - 3]).unwrap();
    let free = "select count(*) from (select from fairlock.lock where name = 'x' for update skip locked) l";
    eventually("it keeps the row", || number(&mut con, free) == 0);
    std::thread::sleep(backend.0.pool.attempt_ttl() + SECOND);
    let version = number(&mut con, "select current_setting('server_version_num')::bigint");
    assert_eq!(number(&mut con, free) == 1, version >= 170_000);
}
