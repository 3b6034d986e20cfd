//! Settings that an operator gives to a database or a role, and that each of its sessions begins with: what is promised doesn't depend on
//! them, directly and through a pooler.

use std::thread;
use std::time::Duration;

use fairlock::admin::{Finding, Verdict};
use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Place, Renew, RequestId, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::{Client, PostgresBackend};
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::{PgBouncer, PostgresServer, eventually};
use postgres::NoTls;

use super::held::{patient, server};
use super::standby::{SOON, end_waiting_commit};

/// A lease that outlives the test on a busy machine.
const LONG: Duration = Duration::from_secs(1800);

/// What a setting changes for locks.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Nothing.
    Same,
    /// The doctor has something to say about it.
    Noted,
    /// Commits don't wait for a standby.
    Unconfirmed,
}
use Then::{Noted, Same, Unconfirmed};

const SETTINGS: [(&str, &str, Then); 26] = [
    ("client_min_messages", "error", Same),
    ("client_min_messages", "debug5", Same),
    ("default_transaction_isolation", "'repeatable read'", Noted),
    ("default_transaction_isolation", "serializable", Noted),
    ("default_transaction_deferrable", "on", Same),
    ("search_path", "nowhere", Same),
    ("DateStyle", "'SQL, DMY'", Same),
    ("IntervalStyle", "iso_8601", Same),
    ("TimeZone", "'Pacific/Chatham'", Same),
    ("extra_float_digits", "-15", Same),
    ("bytea_output", "escape", Same),
    ("standard_conforming_strings", "off", Same),
    ("array_nulls", "off", Same),
    ("lc_messages", "'POSIX'", Same),
    ("row_security", "off", Same),
    ("plan_cache_mode", "force_custom_plan", Same),
    ("client_encoding", "LATIN1", Same),
    ("exit_on_error", "on", Same),
    ("statement_timeout", "'1s'", Same),
    ("lock_timeout", "'1ms'", Same),
    ("idle_in_transaction_session_timeout", "'30ms'", Same),
    ("log_statement", "'all'", Same),
    ("log_error_verbosity", "terse", Same),
    ("synchronous_commit", "remote_apply", Same),
    ("synchronous_commit", "local", Unconfirmed),
    ("synchronous_commit", "off", Unconfirmed),
];

fn connect(url: &str) -> PostgresBackend {
    patient(url).response_timeout(SOON).connect().unwrap()
}

/// Waits, hand-overs, a look at a transaction of the program's own, and a doctor who knows all that it asks about.
fn works(url: &str, then: Then) {
    let [ours, theirs] = [(), ()].map(|()| Client::new(patient(url).connect().unwrap()).unwrap());
    for name in ["a", "a", "b"] {
        let guard = take(&ours.fair_lock(name).unwrap());
        let waiting = request(&theirs, name);
        guard.renew().unwrap();
        let held = "select fairlock.still_held($1, $2)";
        let mut con = postgres::Client::connect(url, NoTls).unwrap();
        assert!(con.query_one(held, &[&name, &guard.token().as_i64()]).unwrap().get::<_, bool>(0));
        guard.unlock().unwrap();
        let next = granted(waiting, SOON);
        next.unlock().unwrap();
    }
    let found = connect(url).doctor().unwrap();
    let found_slow = |found: &&Finding| found.text.contains(" is quicker"); // which tells how busy the machine is, as the clock does
    let bad = found.iter().filter(|found| found.verdict != Verdict::Good && !found_slow(found));
    let topics = bad.map(|found| found.topic);
    let others = ["commits", "clock", "connections"]; // tests do without fsync, and `commits` says so
    let topics: Vec<_> = topics.filter(|topic| !others.contains(topic)).collect();
    assert!(topics == [] as [&str; 0] || then == Noted && topics == ["isolation"], "{found:?}");
}

fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

/// A client of a database, before commits wait for a standby: it has told its clock, and its locks have rows.
struct Prepared {
    backend: PostgresBackend,
    what: String,
}

impl Prepared {
    fn new(url: &str, what: String) -> Prepared {
        let backend = connect(url);
        for name in ["renewed", "free"] {
            let (lock, owner) = (lock(name), OwnerId::new("ann:1"));
            let place = Place::new(&lock, &owner, RequestId::new(1));
            let Acquired::Granted { token, .. } =
                only(backend.acquire(&[Acquire::new(place, LONG)])).unwrap()
            else {
                panic!("{what}: it is free")
            };
            if name == "free" {
                only(backend.release(&[Hold::new(&lock, &owner, RequestId::new(1), token)])).unwrap();
            }
        }
        Prepared { backend, what }
    }

    /// Grants by the fast and by the general part, and renewals, while nobody confirms them and the wait for that is cancelled.
    fn promises_nothing(&self, server: &PostgresServer) {
        let (backend, what, owner) = (&self.backend, &self.what, OwnerId::new("ann:1"));
        let place = |lock, request| Place::new(lock, &owner, RequestId::new(request));
        let (free, new, renewed) = (lock("free"), lock("new"), lock("renewed"));
        let grant = |lock| only(backend.acquire(&[Acquire::new(place(lock, 2), 3 * SOON)])).map(drop);
        let state = backend.inspect(&renewed, 0..0).unwrap();
        let hold = Hold::new(&renewed, &owner, RequestId::new(1), state.holders[0].token.unwrap());
        let renew = || {
            let items = [Renew::Hold { hold, holds: 1, lease: 2 * LONG }];
            backend.renew(ClientId::random(), &items).remove(0).map(drop)
        };
        let is_unconfirmed = |call, ask: &(dyn Fn() -> Result<(), BackendError> + Sync)| {
            thread::scope(|scope| {
                let asked = scope.spawn(ask);
                end_waiting_commit(server, "pg_cancel_backend");
                let answer = asked.join().unwrap();
                let kind = answer.as_ref().map_err(BackendError::kind);
                assert_eq!(kind, Err(BackendErrorKind::Unavailable), "{what}, {call}: {answer:?}");
            });
        };
        is_unconfirmed("fast", &|| grant(&free));
        is_unconfirmed("general", &|| grant(&new));
        is_unconfirmed("renewal", &renew);
    }
}

/// PostgreSQL 13 has no such setting. A session is subject to the limit from its login until its first statement lifts it: so the limit
/// is longer than a busy machine may stand still between the two.
#[test]
fn a_time_limit_for_idle_sessions_ends_none_of_a_client() {
    let server = server();
    let url = server.new_database();
    let database = url.rsplit('/').next().unwrap();
    let set = format!(
        "do $$ begin alter database {database} set idle_session_timeout = '5s'; exception when undefined_object then null; end $$"
    );
    server.con().batch_execute(&set).unwrap();
    let backend = patient(&url).connect().unwrap();
    let [ours, theirs] = [(), ()].map(|()| Client::new(backend.clone()).unwrap());
    let guard = take(&ours.fair_lock("x").unwrap());
    let waiting = request(&theirs, "x");
    thread::sleep(Duration::from_secs(6)); // the sessions rest
    guard.renew().unwrap();
    assert_eq!((backend.reconnects(), theirs.stats().gaps), (0, 0));
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
}

#[test]
fn no_setting_of_a_database_changes_what_is_promised() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let mut prepared = Vec::new();
    for (name, value, then) in SETTINGS {
        let url = server.new_database();
        let database = url.rsplit('/').next().unwrap();
        let set = format!("alter database {database} set {name} = {value}");
        println!("{set}");
        server.con().batch_execute(&set).unwrap();
        works(&url, then);
        if then != Unconfirmed {
            prepared.push(Prepared::new(&url, format!("{name} = {value}")));
        }
        if name == "client_min_messages" {
            let pooled = url.replace(&server.address(), &pooler.address());
            prepared.push(Prepared::new(&pooled, format!("{name} = {value}, pooled")));
        }
    }
    server.set_standby("nobody");
    prepared.iter().for_each(|one| one.promises_nothing(&server));
}

/// Commits through a pooler stay synchronous, whatever is set meanwhile. The client's leases may be longer than a server that
/// forgets what it has granted allows; a pooler gives each transaction another session.
#[test]
fn commits_through_a_pooler_stay_synchronous() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let url = server.new_database();
    let prepared = Prepared::new(&url.replace(&server.address(), &pooler.address()), "pooled".to_owned());
    assert_eq!(prepared.backend.longest_lease(), None);
    let database = url.rsplit('/').next().unwrap();
    let ends = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'");
    server
        .con()
        .batch_execute(&format!("alter database {database} set synchronous_commit = off; {ends}"))
        .unwrap();
    let mut level = String::new();
    eventually("the pooler has new sessions", || {
        let con = postgres::Client::connect(&url, NoTls);
        level = con.and_then(|mut con| con.query_one("show synchronous_commit", &[])).unwrap().get(0);
        prepared.backend.inspect(&lock("free"), 0..0).is_ok()
    });
    assert_eq!(level, "off");
    server.set_standby("nobody");
    prepared.promises_nothing(&server);
}
