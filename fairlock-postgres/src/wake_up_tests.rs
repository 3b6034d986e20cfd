//! When a client listens, what it hears, and what happens where it can't.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Acquire, Acquired, Backend, Hold, Place, RequestId, Wake, WakeSink};
use fairlock_core::{Client, ClientId, Guard, LockKind, LockRequest, OwnerId, Stats};
use parking_lot::Mutex;

use crate::net::Statement;
use crate::test_server::{Pooler, new_database, pooled};
use crate::tests::{LEASE, SECOND, lock, session, soon, take};
use crate::{PostgresBackend, WakeUps};

/// A client whose places live so long that no heartbeat is due in a test.
fn client(backend: PostgresBackend) -> Client {
    Client::builder(backend).place_ttl(SECOND * 60).build().unwrap()
}

fn listening(url: &str) -> PostgresBackend {
    PostgresBackend::connect(url).unwrap()
}

fn polling(url: &str) -> PostgresBackend {
    PostgresBackend::builder(url).wake_ups(WakeUps::Poll(SECOND / 500)).connect().unwrap()
}

/// How many sessions of this database show that a client is there.
fn present(url: &str) -> i64 {
    let sql = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = \
               current_database())";
    session(url).flight(&[Statement::new(sql, [])], soon()).unwrap()[0][0].number(0).unwrap()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let give_up_at = Instant::now() + SECOND * 10;
    while !done() {
        assert!(Instant::now() < give_up_at, "waited 10 s until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn granted(request: LockRequest) -> Guard {
    request.decided().recv_timeout(SECOND * 10).expect("it is granted");
    request.wait().unwrap()
}

#[test]
fn a_client_listens_only_while_it_waits() {
    let url = new_database();
    let [ours, theirs] = [(); 2].map(|()| client(listening(&url)));
    let [our_lock, their_lock] = [&ours, &theirs].map(|client| client.fair_lock("x").unwrap());
    for turn in 1..3 {
        our_lock.lock().unwrap().unlock().unwrap();
        let guard = their_lock.lock().unwrap();
        assert!(our_lock.try_lock().unwrap().guard().is_none());
        assert_eq!(present(&url), 0);
        let request = our_lock.request().unwrap();
        assert_eq!(present(&url), 1);
        guard.unlock().unwrap();
        granted(request).unlock().unwrap();
        assert_eq!((ours.stats().granted_by_wake_up, ours.stats().gaps), (turn, 0));
        until("it has ended to listen", || present(&url) == 0);
    }
}

#[test]
fn no_grant_is_found_by_a_heartbeat_while_nothing_fails() {
    let ways: [fn(&str) -> PostgresBackend; 2] = [listening, polling];
    for (way, kind) in [(0, LockKind::Fair), (1, LockKind::Fair), (1, LockKind::Plain)] {
        let url = new_database();
        let clients = [(); 2].map(|()| client(ways[way](&url)));
        thread::scope(|scope| {
            for client in clients.iter().flat_map(|client| [client; 2]) {
                let made =
                    if kind == LockKind::Plain { client.plain_lock("x") } else { client.fair_lock("x") };
                let lock = made.unwrap();
                scope.spawn(move || (0..100).for_each(|_| lock.lock().unwrap().unlock().unwrap()));
            }
        });
        let stats = clients.map(|client| client.stats());
        let sum = |count: fn(&Stats) -> u64| stats.iter().map(count).sum::<u64>();
        assert_eq!([sum(|all| all.granted_by_polling), sum(|all| all.gaps)], [0; 2], "{stats:?}");
        let least = if kind == LockKind::Fair { 20 } else { 1 };
        assert!(sum(|all| all.granted_by_wake_up) >= least, "{stats:?}");
    }
}

#[test]
fn a_client_that_polls_or_does_not_listen_yet_is_not_passed_over_and_one_that_is_gone_is() {
    let url = new_database();
    let [holder, later] = [(); 2].map(|()| client(listening(&url)));
    let backend = listening(&url);
    let (x, stranger) = (lock("x"), OwnerId::new("one that never listened:1"));
    let holders = holder.fair_lock("x").unwrap();
    let guard = holders.lock().unwrap();
    backend.acquire(&Acquire::new(Place::new(&x, &stranger, RequestId::new(1)), LEASE)).unwrap();
    let polls = client(polling(&url));
    let second = polls.fair_lock("x").unwrap().request().unwrap();
    let (gone, (sender, _heard)) = (ClientId::random(), channel());
    let subscription = backend.subscribe(gone, Arc::new(Heard(sender))).unwrap();
    let its_owner = OwnerId::new(&format!("{gone}:1"));
    let mut its_place = Place::new(&x, &its_owner, RequestId::new(2));
    its_place.ttl = SECOND * 60;
    backend.acquire(&Acquire::new(its_place, LEASE)).unwrap();
    let last = later.fair_lock("x").unwrap().request().unwrap();
    assert_eq!((present(&url), last.rank()), (2, Some(3)));
    drop(subscription);
    until("the session has ended", || present(&url) == 1);
    guard.unlock().unwrap();
    let token = holders.inspect().unwrap().holder().unwrap().token.unwrap();
    backend.release(&Hold::new(&x, &stranger, RequestId::new(1), token)).unwrap();
    granted(second).unlock().unwrap();
    granted(last).unlock().unwrap();
    assert_eq!([&polls, &later].map(|client| client.stats().granted_by_wake_up), [1, 1]);
}

#[test]
fn behind_a_pooler_that_loses_messages_a_client_says_so_and_polls() {
    let lines = || log_lines().lock().iter().filter(|line| line.contains(".listen_on(url)")).count();
    let (url, before) = (new_database(), lines());
    let (holder, backend) = (client(listening(&pooled(&url))), listening(&pooled(&url)));
    for _ in 0..2 {
        let ours = client(backend.clone());
        let guard = holder.fair_lock("x").unwrap().lock().unwrap();
        let request = ours.fair_lock("x").unwrap().request().unwrap();
        until("it polls", || lines() == before + 1);
        guard.unlock().unwrap();
        granted(request).unlock().unwrap();
        assert_eq!(ours.stats().granted_by_wake_up, 1);
        assert_eq!(present(&url), 0); // a session of the pooler would keep it
    }
}

#[test]
fn a_request_asks_again_if_its_client_did_not_hear_before() {
    let url = new_database();
    let (backend, client, (sender, _heard)) = (listening(&url), ClientId::random(), channel());
    let _subscription = backend.subscribe(client, Arc::new(Heard(sender))).unwrap();
    let (lock, owner) = (lock("x"), OwnerId::new(&format!("{client}:1")));
    let queued = Acquired::Queued { rank: 0, recheck_in: SECOND, ticket: 1, latest: 1 };
    let heard_at_each_ask = |request| {
        let asked = Mutex::new(Vec::new());
        let ask = || {
            asked.lock().push(present(&url));
            Ok(queued)
        };
        let place = Place::new(&lock, &owner, RequestId::new(request));
        backend.0.ask_and_hear(&place, soon(), ask).unwrap();
        asked.into_inner()
    };
    assert_eq!(heard_at_each_ask(1), [0, 1]);
    assert_eq!(heard_at_each_ask(2), [1]);
}

/// The poll has seen the row with that grant for another request of the client by then.
#[test]
fn a_poll_finds_a_grant_that_came_before_its_request_was_known_to_wait() {
    let url = new_database();
    let (ours, theirs) = (polling(&url), listening(&url));
    let (client, (sender, heard)) = (ClientId::random(), channel());
    let _subscription = ours.subscribe(client, Arc::new(Heard(sender))).unwrap();
    let (lock, ann) = (lock("x"), OwnerId::new("ann:1"));
    let [first, second] = ["1", "2"].map(|thread| OwnerId::new(&format!("{client}:{thread}")));
    let [first, second] = [(&first, 1), (&second, 2)].map(|(owner, request)| {
        let mut place = Place::new(&lock, owner, RequestId::new(request));
        place.ttl = SECOND * 60;
        Acquire::new(place, LEASE)
    });
    let token = take(&theirs, &lock, &ann);
    let early = ours.0.ask_and_hear(&first.place, soon(), || {
        let deadline = ours.0.pool.deadline();
        let queued =
            ours.0.step(None, &lock.name, deadline, |entry, turn| entry.acquire(turn, &first)).unwrap();
        ours.acquire(&second).unwrap();
        theirs.release(&Hold::new(&lock, &ann, RequestId::new(1), token)).unwrap();
        let rev = "select rev from fairlock.lock";
        let rev = session(&url).flight(&[Statement::new(rev, [])], soon()).unwrap()[0][0].number(0).unwrap();
        until("the poll has seen the grant", || has_seen(&ours, client, rev));
        queued
    });
    assert!(matches!(early, Ok(Acquired::Queued { .. })) && heard.try_recv().is_err());
    let granted = heard.recv_timeout(SECOND * 5).unwrap();
    assert!(granted.starts_with("Granted") && granted.contains("RequestId(1)"), "{granted}");
}

struct Heard(Sender<String>);

impl WakeSink for Heard {
    fn wake(&self, wake: Wake<'_>) {
        let _ = self.0.send(format!("{wake:?}"));
    }
}

#[test]
fn a_client_whose_connection_for_wake_ups_ends_is_told_of_the_gap_and_hears_again() {
    let url = new_database();
    let (ours, theirs) = (PostgresBackend::connect(&url).unwrap(), PostgresBackend::connect(&url).unwrap());
    let (client, (sender, heard)) = (ClientId::random(), channel());
    let _subscription = ours.subscribe(client, Arc::new(Heard(sender))).unwrap();
    let (lock, ann, bob) = (lock("x"), OwnerId::new("ann:1"), OwnerId::new(&format!("{client}:1")));
    let token = take(&theirs, &lock, &ann);
    ours.acquire(&Acquire::new(Place::new(&lock, &bob, RequestId::new(2)), LEASE)).unwrap();
    let mut con = session(&url);
    let end = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and database = (select oid from \
               pg_database where datname = current_database())";
    con.script(end, soon()).unwrap();
    assert_eq!(heard.recv_timeout(SECOND * 5).unwrap(), "Gap");
    theirs.release(&Hold::new(&lock, &ann, RequestId::new(1), token)).unwrap();
    let granted = heard.recv_timeout(SECOND * 5).unwrap();
    assert!(granted.starts_with("Granted") && granted.contains("RequestId(2)"), "{granted}");
}

/// As after a fail-over: the connection lives, at a server that the commands have left.
#[test]
fn a_client_that_listens_elsewhere_than_its_commands_go_says_so_and_tells_of_the_gap_when_it_is_back() {
    let lines = || log_lines().lock().iter().filter(|line| line.contains("another one than that of")).count();
    let [url, other] = [(); 2].map(|()| new_database());
    let database = |url: &str| url.split(['/', '?']).nth(3).unwrap().to_owned();
    let pooler = Pooler::start("moves", &database(&url));
    let ours = PostgresBackend::builder(&pooler.url("moves")).listen_on(&url).connect().unwrap();
    let (client, (sender, heard)) = (ClientId::random(), channel());
    let _subscription = ours.subscribe(client, Arc::new(Heard(sender))).unwrap();
    let (lock, ann, bob) = (lock("x"), OwnerId::new("ann:1"), OwnerId::new(&format!("{client}:1")));
    take(&ours, &lock, &ann);
    let mut place = Place::new(&lock, &bob, RequestId::new(2));
    place.ttl = SECOND * 60;
    ours.acquire(&Acquire::new(place, LEASE)).unwrap();
    let before = lines();
    pooler.turn_to("moves", &database(&other));
    until("it notices", || lines() > before);
    assert!(heard.try_recv().is_err());
    pooler.turn_to("moves", &database(&url));
    assert_eq!(heard.recv_timeout(SECOND * 5).unwrap(), "Gap");
}

fn log_lines() -> &'static Mutex<Vec<String>> {
    struct Kept(Mutex<Vec<String>>);
    impl log::Log for Kept {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            self.0.lock().push(record.args().to_string());
        }
        fn flush(&self) {}
    }
    static KEPT: Kept = Kept(Mutex::new(Vec::new()));
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&KEPT).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    &KEPT.0
}

/// Whether the polls of this client have seen this revision for its only request.
fn has_seen(backend: &PostgresBackend, client: ClientId, rev: i64) -> bool {
    let client = backend.0.clients.get(&client.to_string()).unwrap();
    client.link.waiting().iter().map(|(_, seen)| *seen).eq([rev])
}
