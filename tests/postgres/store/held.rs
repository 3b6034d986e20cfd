//! `fairlock.still_held` in the program's own transactions: who waits for them, and what the guard tells meanwhile.

use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, FencingToken, LostCause, PostgresBackend};
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::{PostgresServer, eventually};
use postgres::{GenericClient, IsolationLevel};

/// A server that these tests share. Each has a lock for itself.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
    &SERVER
}

/// A client with the default times.
pub(crate) fn connect(server: &PostgresServer) -> Client {
    Client::new(PostgresBackend::connect(&server.url()).unwrap()).unwrap()
}

const SOON: Duration = Duration::from_secs(10);
/// A release that could not be told is repeated after a second at most, and waits for the row for half of one.
const REPEATED: Duration = Duration::from_millis(2500);

const SLACK: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(2);
/// After a silence the next waiter has half of it to find its grant, on a busy machine.
const PLACE: Duration = Duration::from_secs(6);

/// One call in a program's transaction.
fn still_held(work: &mut impl GenericClient, name: &str, token: FencingToken) -> bool {
    let row = work.query_one("select fairlock.still_held($1, $2)", &[&name, &token.as_i64()]).unwrap();
    row.get(0)
}

/// A client with a short lease.
fn impatient(server: &PostgresServer) -> Client {
    let backend = PostgresBackend::builder(&server.url()).response_timeout(LEASE / 2).connect().unwrap();
    Client::builder(backend).lease(LEASE).place_ttl(PLACE).build().unwrap()
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
    let began = Instant::now();
    drop(guard); // one attempt, then in the background
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    first.commit().unwrap();
    assert!(waiting.wait_for(REPEATED).unwrap().guard().is_none(), "while the second transaction goes on");
    assert!(still_held(&mut look, "two", token) && !still_held(&mut look, "another", token));
    second.commit().unwrap();
    let next = granted(waiting, REPEATED);
    assert!(next.token() > token && !still_held(&mut look, "two", token));
}

/// A transaction that outlasts the lease and the places is written before all others, and in order.
#[test]
fn a_transaction_that_outlasts_its_lease_is_written_first() {
    let server = server();
    let mut con = server.con();
    con.batch_execute("create table written (at bigserial, who text)").unwrap();
    let writes = |who: &'static str| {
        let (client, mut con) = (impatient(server), server.con());
        move || {
            let guard = client.fair_lock("outlasts").unwrap().lock().unwrap();
            let mut work = con.transaction().unwrap();
            work.execute("insert into written (who) values ($1)", &[&who]).unwrap();
            assert!(still_held(&mut work, "outlasts", guard.token()));
            work.commit().unwrap();
            guard.unlock().unwrap();
        }
    };
    let client = impatient(server);
    let lock = client.fair_lock("outlasts").unwrap();
    let guard = take(&lock);
    let bob = thread::spawn(writes("bob"));
    eventually("bob stands in the queue", || lock.inspect().unwrap().queue_length == 1);
    let mut work = con.transaction().unwrap();
    assert!(still_held(&mut work, "outlasts", guard.token()));
    let began = Instant::now();
    let carl = thread::spawn(writes("carl")); // who can't join the queue yet
    eventually("the guard says that it is lost", || guard.is_lost());
    thread::sleep((PLACE + SLACK).saturating_sub(began.elapsed())); // also the place is over by then
    work.execute("insert into written (who) values ('ann')", &[]).unwrap();
    work.commit().unwrap();
    let Err(Error::Lost(lost)) = guard.unlock() else { panic!("it was lost") };
    assert_eq!(lost.cause, LostCause::NotRenewed);
    bob.join().unwrap();
    carl.join().unwrap();
    let rows = con.query("select who from written order by at", &[]).unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["ann", "bob", "carl"]);
}

/// An unlock inside the transaction says `Unavailable`, and the lock is free soon after the commit.
#[test]
fn an_unlock_inside_the_transaction_says_unavailable() {
    let server = server();
    let backend = PostgresBackend::connect(&server.url()).unwrap();
    let client = Client::builder(backend).outage_limit(Duration::from_secs(1)).build().unwrap();
    let (other, mut con) = (connect(server), server.con());
    let guard = take(&client.fair_lock("inside").unwrap());
    let mut work = con.transaction().unwrap();
    assert!(still_held(&mut work, "inside", guard.token()));
    assert!(
        is_unavailable(client.fair_lock("inside").unwrap().force_unlock()),
        "nor does an operator get it"
    );
    let began = Instant::now();
    assert!(is_unavailable(guard.unlock()));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let lock = other.fair_lock("inside").unwrap();
    assert!(is_unavailable(lock.try_lock()), "not even busy can be said");
    work.commit().unwrap();
    let committed = Instant::now();
    take(&lock).unlock().unwrap();
    assert!(committed.elapsed() < REPEATED, "{:?}", committed.elapsed());
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

/// Waiters keep their order behind one transaction after the other. A place lasts for less than two of the transactions, and its
/// row is free for moments only.
#[test]
fn waiters_keep_their_order_behind_many_transactions() {
    let server = server();
    let client = |_| {
        let backend = PostgresBackend::builder(&server.url()).response_timeout(SLACK).connect().unwrap();
        Client::builder(backend).place_ttl(SLACK * 2).build().unwrap()
    };
    let clients: Vec<_> = (0..8).map(client).collect();
    let first = take(&clients[0].fair_lock("in turn").unwrap());
    let waiting: Vec<_> = clients.iter().map(|client| request(client, "in turn")).collect();
    let served = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, waiting) in waiting.into_iter().enumerate() {
            let served = &served;
            scope.spawn(move || {
                let mut con = server.con();
                let guard = granted(waiting, 3 * SOON);
                served.lock().unwrap().push(number);
                let mut work = con.transaction().unwrap();
                assert!(still_held(&mut work, "in turn", guard.token()));
                thread::sleep(SLACK * 3 / 2);
                work.commit().unwrap();
                _ = guard.unlock(); // its lease may have ended meanwhile
            });
        }
        first.unlock().unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
}
