//! When a client listens, what it hears, and what happens where it can't.

mod faults;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Once};

use fairlock_core::backend::{Acquired, Backend, Subscription, Wake, WakeSink, only};
use fairlock_core::{Client, ClientId, Guard, OwnerId, Request};
use fairlock_tests::log_lines::{keep_log_lines, log_lines, panic_at_log_lines};
use fairlock_tests::{PgBouncer, eventually};
use log::LevelFilter;
use parking_lot::Mutex;

use crate::command::Command;
use crate::step::ask_one;
use crate::test_server::{SERVER, new_database, pooled};
use crate::tests::{SECOND, ask, hold, lock, number, patient, session, soon, take};
use crate::wake_ups::ask_and_hear;
use crate::{PostgresBackend, WakeUps};

/// A client whose places live so long that no heartbeat is due in a test.
fn client(backend: PostgresBackend) -> Client {
    Client::builder(backend).place_ttl(SECOND * 600).build().unwrap()
}

fn listening(url: &str) -> PostgresBackend {
    patient(url).connect().unwrap()
}

fn polling(url: &str) -> PostgresBackend {
    patient(url).wake_ups(WakeUps::Poll(SECOND / 500)).connect().unwrap()
}

struct Heard(Sender<String>);

impl WakeSink for Heard {
    fn wake(&self, wake: Wake<'_>) {
        let _ = self.0.send(format!("{wake:?}"));
    }
}

/// The first owner of a new client, and what that client hears.
fn subscribed(backend: &PostgresBackend) -> (OwnerId, Receiver<String>, Subscription) {
    let (client, (sender, heard)) = (ClientId::random(), channel());
    let subscription = backend.subscribe(client, Arc::new(Heard(sender))).unwrap();
    (OwnerId::new(&format!("{client}:1")), heard, subscription)
}

fn heard_of_grant(heard: &Receiver<String>, request: u64) {
    let granted = heard.recv_timeout(SECOND * 60).unwrap();
    assert!(
        granted.starts_with("Granted") && granted.contains(&format!("RequestId({request})")),
        "{granted}"
    );
}

const PRESENT: &str = "from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = \
                       current_database())";

/// How many sessions of this database show that a client is there.
fn present(url: &str) -> i64 {
    number(&mut session(url), &format!("select count(*) {PRESENT}"))
}

fn until(what: &str, done: impl FnMut() -> bool) {
    eventually(what, done);
}

fn granted(request: Request) -> Guard {
    request.decided().recv_timeout(SECOND * 60).expect("it is granted");
    request.wait().unwrap()
}

#[test]
fn a_client_listens_only_while_it_waits() {
    let url = new_database();
    let [ours, theirs] = [(); 2].map(|()| client(listening(&url)));
    let [our_lock, their_lock] = [&ours, &theirs].map(|client| client.fair_lock("x").unwrap());
    for round in 1..3 {
        our_lock.lock().unwrap().unlock().unwrap();
        let guard = their_lock.lock().unwrap();
        assert!(our_lock.try_lock().unwrap().granted().is_none());
        assert_eq!(present(&url), 0);
        let request = our_lock.request().unwrap();
        assert_eq!(present(&url), 1);
        guard.unlock().unwrap();
        granted(request).unlock().unwrap();
        assert_eq!((ours.stats().granted_by_wake_up, ours.stats().gaps), (round, 0));
        until("it has ended to listen", || present(&url) == 0);
    }
}

#[test]
fn a_waiter_for_a_plain_lock_hears_of_its_release() {
    for way in [listening, polling] {
        let url = new_database();
        let [ours, theirs] = [(); 2].map(|()| client(way(&url)));
        let guard = theirs.plain_lock("x").unwrap().lock().unwrap();
        let request = ours.plain_lock("x").unwrap().request().unwrap();
        guard.unlock().unwrap();
        granted(request).unlock().unwrap();
        assert_eq!(ours.stats().granted_by_polling, 0);
    }
}

/// A client that polls or does not listen yet is not passed over, and a client that is gone is.
#[test]
fn only_a_client_that_is_gone_is_passed_over() {
    let url = new_database();
    let [holder, later] = [(); 2].map(|()| client(listening(&url)));
    let backend = listening(&url);
    let (x, stranger) = (lock("x"), OwnerId::new("one that never listened:1"));
    let holders = holder.fair_lock("x").unwrap();
    let guard = holders.lock().unwrap();
    only(backend.acquire(&[ask(&x, &stranger, 1)])).unwrap();
    let polls = client(polling(&url));
    let second = polls.fair_lock("x").unwrap().request().unwrap();
    let (gone, _heard, subscription) = subscribed(&backend);
    only(backend.acquire(&[ask(&x, &gone, 2)])).unwrap();
    let last = later.fair_lock("x").unwrap().request().unwrap();
    assert_eq!((present(&url), last.rank()), (2, Some(3)));
    drop(subscription);
    until("the session has ended", || present(&url) == 1);
    guard.unlock().unwrap();
    let token = holders.admin().inspect().unwrap().holder().unwrap().token.unwrap();
    only(backend.release(&[hold(&x, &stranger, token)])).unwrap();
    granted(second).unlock().unwrap();
    granted(last).unlock().unwrap();
    assert_eq!([&polls, &later].map(|client| client.stats().granted_by_wake_up), [1, 1]);
}

/// Behind a pooler that loses messages, a client says so and polls.
#[test]
fn a_client_polls_behind_a_pooler_that_loses_messages() {
    let lines = || lines(".listen_on(url)");
    let (url, before) = (new_database(), lines());
    let (holder, backend) = (client(listening(&pooled(&url))), listening(&pooled(&url)));
    for _ in 0..2 {
        let ours = client(backend.clone());
        let guard = holder.fair_lock("x").unwrap().lock().unwrap();
        let request = ours.fair_lock("x").unwrap().request().unwrap();
        until("it says so", || lines() > before);
        guard.unlock().unwrap();
        granted(request).unlock().unwrap();
        assert_eq!(ours.stats().granted_by_wake_up, 1);
        assert_eq!(present(&url), 0); // a session of the pooler would keep it
    }
}

#[test]
fn a_request_asks_again_if_its_client_did_not_hear_before() {
    let url = new_database();
    let (backend, lock) = (listening(&url), lock("x"));
    let (owner, _heard, _subscription) = subscribed(&backend);
    let queued = Acquired::Queued { rank: 0, recheck_in: SECOND, ticket: 1, latest: 1 };
    for (request, heard_at_each_ask) in [(1, &[0, 1][..]), (2, &[1])] {
        let asked = Mutex::new(Vec::new());
        let at_ask = |_: &[usize]| {
            asked.lock().push(present(&url));
            vec![Ok(queued)]
        };
        ask_and_hear(&backend.0, &[ask(&lock, &owner, request).place], soon(), at_ask)
            .pop()
            .unwrap()
            .unwrap();
        assert_eq!(asked.into_inner(), heard_at_each_ask);
    }
}

/// A poll finds a grant that came before its request was known to wait. The poll has seen the row with that grant for another
/// request of the client by then.
#[test]
fn a_poll_finds_a_grant_from_before_the_wait_was_known() {
    let url = new_database();
    let (ours, theirs) = (polling(&url), listening(&url));
    let (one, heard, _subscription) = subscribed(&ours);
    let (lock, ann, other) = (lock("x"), OwnerId::new("ann:1"), OwnerId::new(&format!("{}:2", one.client())));
    let [first, second] = [(&one, 1), (&other, 2)].map(|(owner, request)| ask(&lock, owner, request));
    let (token, store) = (take(&theirs, &lock, &ann), &ours.0);
    let early = ask_and_hear(store, &[first.place], soon(), |_| {
        let queued = ask_one(store, &lock.name, Command::acquire(&first));
        only(ours.acquire(&[second])).unwrap();
        only(theirs.release(&[hold(&lock, &ann, token)])).unwrap();
        let rev = number(&mut session(&url), "select rev from fairlock.lock");
        until("the poll has seen the grant", || has_seen(&ours, one.client(), rev));
        vec![queued]
    });
    assert!(matches!(early[..], [Ok(Acquired::Queued { .. })]) && heard.try_recv().is_err());
    heard_of_grant(&heard, 1);
}

/// A waiter's connection for wake-ups ends: it is told of the gap, and then of its grant.
fn a_gap_is_told_and_then_a_grant() {
    let url = new_database();
    let (ours, theirs) = (listening(&url), listening(&url));
    let (bob, heard, _subscription) = subscribed(&ours);
    let (lock, ann) = (lock("x"), OwnerId::new("ann:1"));
    let token = take(&theirs, &lock, &ann);
    only(ours.acquire(&[ask(&lock, &bob, 2)])).unwrap();
    session(&url).script(&format!("select pg_terminate_backend(pid) {PRESENT}"), soon()).unwrap();
    assert_eq!(heard.recv_timeout(SECOND * 60).unwrap(), "Gap");
    only(theirs.release(&[hold(&lock, &ann, token)])).unwrap();
    heard_of_grant(&heard, 2);
}

/// Its connection for wake-ups ends. Afterwards it hears again.
#[test]
fn a_client_that_stops_hearing_is_told_of_the_gap() {
    a_gap_is_told_and_then_a_grant();
}

#[test]
fn a_logger_that_panics_costs_no_wake_up() {
    lines("");
    panic_at_log_lines("lost the connection for wake-ups");
    a_gap_is_told_and_then_a_grant();
}

/// A client that did not hear itself tries again, and polls until it hears itself. Its message to itself may have been late,
/// once, or the pooler be replaced.
#[test]
fn a_client_that_did_not_hear_itself_polls_and_retries() {
    let (url, pooler) = (new_database(), PgBouncer::start(&SERVER));
    let database = url.rsplit('/').next().unwrap();
    pooler.turn("hears", database);
    let listen_at = format!("postgres://fairlock@{}/hears", pooler.address());
    let ours = patient(&url).listen_on(&listen_at).connect().unwrap();
    let theirs = listening(&url);
    let (bob, heard, _subscription) = subscribed(&ours);
    let (x, y, ann) = (lock("x"), lock("y"), OwnerId::new("ann:1"));
    let [first, second] = [&x, &y].map(|lock| take(&theirs, lock, &ann));
    only(ours.acquire(&[ask(&x, &bob, 2)])).unwrap();
    only(ours.acquire(&[ask(&y, &bob, 3)])).unwrap();
    until("it polls", || ours.0.clients.deaf_until().is_some());
    only(theirs.release(&[hold(&x, &ann, first)])).unwrap();
    heard_of_grant(&heard, 2);
    pooler.turn_to_sessions("hears", database);
    assert_eq!(heard.recv_timeout(SECOND * 60).unwrap(), "Gap");
    assert!(ours.0.clients.deaf_until().is_none());
    only(theirs.release(&[hold(&y, &ann, second)])).unwrap();
    heard_of_grant(&heard, 3);
}

/// Many workers of two processes that are gone are passed over at once.
#[test]
fn many_workers_of_two_dead_processes_are_passed_over() {
    let url = new_database();
    let [holder, later] = [(); 2].map(|()| client(listening(&url)));
    let guard = holder.fair_lock("x").unwrap().lock().unwrap();
    let x = lock("x");
    for _ in 0..2 {
        let backend = listening(&url);
        let (gone, _heard, subscription) = subscribed(&backend);
        for worker in 1..=4 {
            let owner = OwnerId::new(&format!("{}:{worker}", gone.client()));
            only(backend.acquire(&[ask(&x, &owner, worker)])).unwrap();
        }
        drop(subscription);
        until("the session has ended", || present(&url) == 0);
    }
    let last = later.fair_lock("x").unwrap().request().unwrap();
    guard.unlock().unwrap();
    granted(last).unlock().unwrap();
}

/// A client that listens elsewhere than its commands go notices, and tells of the gap when it listens at the right server again.
/// As after a fail-over: the connection lives, at a server that the commands have left.
#[test]
fn a_client_that_listens_elsewhere_says_so() {
    let (url, other, pooler) = (new_database(), new_database(), PgBouncer::start(&SERVER));
    let turn_to = |url: &str| pooler.turn("moves", url.rsplit('/').next().unwrap());
    turn_to(&url);
    let commands = format!("postgres://fairlock@{}/moves", pooler.address());
    let ours = patient(&commands).listen_on(&url).connect().unwrap();
    let (bob, heard, _subscription) = subscribed(&ours);
    let lock = lock("x");
    take(&ours, &lock, &OwnerId::new("ann:1"));
    only(ours.acquire(&[ask(&lock, &bob, 2)])).unwrap();
    let hears = || ours.0.clients.get(bob.client()).unwrap().link.session().is_some();
    assert!(hears());
    turn_to(&other);
    until("it notices", || !hears());
    assert!(heard.try_recv().is_err());
    turn_to(&url);
    assert_eq!(heard.recv_timeout(SECOND * 60).unwrap(), "Gap");
}

/// How many lines with this part were logged.
fn lines(part: &str) -> usize {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| keep_log_lines(LevelFilter::Warn));
    log_lines(part).len()
}

/// Whether the polls of this client have seen this revision for its only request.
fn has_seen(backend: &PostgresBackend, client: &str, rev: i64) -> bool {
    let client = backend.0.clients.get(client).unwrap();
    client.link.waiting().iter().map(|(_, seen)| *seen).eq([rev])
}
