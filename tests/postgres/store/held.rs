//! `fairlock.still_held` in the program's own transactions: who waits for them, and what the guard tells meanwhile.

use std::time::Duration;

use fairlock::settings::PostgresBuilder;
use fairlock::{Client, Error, FencingToken, PostgresBackend};
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::{PostgresServer, eventually};
use postgres::{GenericClient, IsolationLevel};

/// A server that these tests share. Each has a lock for itself.
pub(crate) fn server() -> &'static PostgresServer {
    PostgresServer::shared()
}

/// For a client that no busy machine makes fail.
pub(crate) fn patient(url: &str) -> PostgresBuilder {
    PostgresBackend::builder(url)
        .connect_timeout(Duration::from_secs(10))
        .response_timeout(Duration::from_secs(10))
}

pub(crate) fn client(url: &str) -> Client {
    Client::new(patient(url).connect().unwrap()).unwrap()
}

pub(crate) fn connect(server: &PostgresServer) -> Client {
    client(&server.url())
}

pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A release that could not be told is repeated after a second at most, and waits for the row for half of one.
const REPEATED: Duration = Duration::from_millis(2500);

/// One call in a program's transaction.
fn still_held(work: &mut impl GenericClient, name: &str, token: FencingToken) -> bool {
    let row = work.query_one("select fairlock.still_held($1, $2)", &[&name, &token.as_i64()]).unwrap();
    row.get(0)
}

fn is_unavailable<T>(said: fairlock::Result<T>) -> bool {
    matches!(said, Err(Error::Unavailable { .. }))
}

/// The transactions of two threads go on side by side, and the lock is free after the last.
#[test]
fn transactions_of_two_threads_go_on_side_by_side() {
    let server = server();
    let (ours, theirs) = (connect(server), connect(server));
    let guard = take(&ours.fair_lock("two").unwrap());
    let token = guard.token();
    let mut waiting = request(&theirs, "two");
    let (mut one, mut other, mut look) = (server.con(), server.con(), server.con());
    let (mut first, mut second) = (one.transaction().unwrap(), other.transaction().unwrap());
    assert!(still_held(&mut first, "two", token) && still_held(&mut second, "two", token));
    drop(guard); // one attempt, then in the background
    first.commit().unwrap();
    assert!(waiting.wait_for(REPEATED).unwrap().granted().is_none(), "while the second transaction goes on");
    assert!(still_held(&mut look, "two", token) && !still_held(&mut look, "another", token));
    second.commit().unwrap();
    let next = granted(waiting, SOON);
    assert!(next.token() > token && !still_held(&mut look, "two", token));
}

/// An unlock inside the transaction says `Unavailable`, and the lock is free soon after the commit.
#[test]
fn an_unlock_inside_the_transaction_says_unavailable() {
    let server = server();
    let backend = patient(&server.url()).connect().unwrap();
    let client = Client::builder(backend).outage_limit(Duration::from_secs(1)).build().unwrap();
    let (other, mut con) = (connect(server), server.con());
    let guard = take(&client.fair_lock("inside").unwrap());
    let mut work = con.transaction().unwrap();
    assert!(still_held(&mut work, "inside", guard.token()));
    assert!(
        is_unavailable(client.fair_lock("inside").unwrap().admin().force_unlock()),
        "nor does an operator get it"
    );
    assert!(is_unavailable(guard.unlock()));
    let lock = other.fair_lock("inside").unwrap();
    assert!(lock.try_lock().unwrap().granted().is_none(), "a read says that it is held");
    work.commit().unwrap();
    take(&lock).unlock().unwrap();
}

/// A transaction whose snapshot is older than the last change is refused, and not told the former state.
#[test]
fn a_transaction_with_an_old_snapshot_is_refused() {
    let server = server();
    let (client, mut con) = (connect(server), server.con());
    let guard = take(&client.fair_lock("snapshot").unwrap());
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let mut work = con.build_transaction().isolation_level(level).start().unwrap();
        work.query_one("select 1", &[]).unwrap(); // its snapshot
        guard.renew().unwrap();
        let sql = "select fairlock.still_held($1, $2)";
        let refused = work.query_one(sql, &[&"snapshot", &guard.token().as_i64()]).unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001", "{refused}");
    }
}

#[test]
fn holds_of_locks_with_several_holders_are_never_still_held() {
    let server = server();
    let (client, mut con) = (connect(server), server.con());
    let (lock, permits) = (client.rw_lock("rw").unwrap(), client.semaphore("api", 2).unwrap());
    let (writing, permit) = (lock.write().unwrap(), permits.acquire().unwrap());
    assert!(!still_held(&mut con, "rw", writing.token()) && !still_held(&mut con, "api", permit.token()));
    let plain = client.plain_lock("plain").unwrap().lock().unwrap();
    assert!(still_held(&mut con, "plain", plain.token()));
}

/// Several holds are asked about by one call, and stay until the transaction ends.
#[test]
fn several_holds_stay_until_the_transaction_ends() {
    let server = server();
    let ours = connect(server);
    let guards = ["several a", "several b"].map(|name| take(&ours.fair_lock(name).unwrap()));
    let tokens = guards.each_ref().map(|guard| guard.token().as_i64());
    let (mut con, mut other) = (server.con(), server.con());
    let mut work = con.transaction().unwrap();
    let mut held = |names: &[&str], tokens: &[i64]| {
        let row = work.query_one("select fairlock.all_still_held($1, $2)", &[&names, &tokens]).unwrap();
        row.get::<_, bool>(0)
    };
    assert!(held(&["several b", "several a"], &[tokens[1], tokens[0]]));
    assert!(!held(&["several a", "several b"], &[tokens[1], tokens[0]]), "each with its own token");
    assert!(!held(&["several a", "several b"], &tokens[..1]) && !held(&["several a"], &[tokens[0], 1]));
    assert!(held(&[], &[]));
    let locked = "select count(*) from (select from fairlock.lock where name in ('several a', 'several b') for update skip locked) l";
    assert_eq!(other.query_one(locked, &[]).unwrap().get::<_, i64>(0), 0, "both rows are locked");
    work.commit().unwrap();
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
}

#[test]
fn a_standby_that_lacks_the_grant_refuses_the_write() {
    let server = PostgresServer::start();
    let standby = server.standby("standby");
    let (mut con, mut there) = (server.con(), standby.con());
    // From now on the standby hears nothing.
    there.batch_execute("alter system set primary_conninfo = ''").unwrap();
    there.batch_execute("select pg_reload_conf()").unwrap();
    eventually("no standby is attached", || {
        con.query("select from pg_stat_replication", &[]).unwrap().is_empty()
    });
    let guard = take(&connect(&server).fair_lock("x").unwrap());
    assert!(still_held(&mut con, "x", guard.token()));
    standby.promote();
    assert!(!still_held(&mut there, "x", guard.token()));
    let next = take(&connect(&standby).fair_lock("x").unwrap());
    assert!(still_held(&mut there, "x", next.token()) && !still_held(&mut there, "x", guard.token()));
}
