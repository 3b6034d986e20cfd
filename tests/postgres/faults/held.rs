//! `fairlock.still_held` in transactions that outlast leases and places.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, FencingToken, LostCause, PostgresBackend};
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::{PostgresServer, eventually};
use postgres::GenericClient;

use super::support::{SOON, server};

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
    eventually("bob stands in the queue", || lock.admin().inspect().unwrap().queue_length == 1);
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
