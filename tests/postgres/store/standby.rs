//! A primary whose synchronous standby has gone: it acknowledges nothing, so it grants nothing.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use fairlock::PostgresBackend;
use fairlock::admin::{LockKind, LockName};
use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, Hold, LockId, Place, RequestId, Wait, Wake,
    WakeSink, only,
};
use fairlock::owner::{ClientId, OwnerId};
use fairlock::settings::WakeUps;
use fairlock_tests::{PostgresServer, eventually};

use super::held::patient;

pub(crate) const SOON: Duration = Duration::from_secs(20);

fn is_unavailable(answer: &Result<Acquired, BackendError>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == BackendErrorKind::Unavailable)
}

fn lock(name: &str) -> LockId {
    LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
}

/// Asks with a lease and a place that outlive the test.
fn ask(backend: &PostgresBackend, lock: &LockId, owner: &OwnerId) -> Result<Acquired, BackendError> {
    let mut place = Place::new(lock, owner, RequestId::new(1));
    (place.wait, place.ttl) = (Wait::Forever, 3 * SOON);
    only(backend.acquire(&[Acquire::new(place, 3 * SOON)]))
}

/// Waits until anybody can see that it holds this many locks: a commit whose wait was cancelled says so a moment before.
fn until_grants_to(server: &PostgresServer, owner: &OwnerId, count: usize) {
    let sql = "select 1 from fairlock.lock where h_owner = $1";
    let mut con = server.con();
    eventually("the grant can be seen", || con.query(sql, &[&owner.as_str()]).unwrap().len() == count);
}

/// Ends the commit that waits, in this way.
pub(crate) fn end_waiting_commit(server: &PostgresServer, way: &str) {
    let sql = format!("select {way}(pid) from pg_stat_activity where wait_event = 'SyncRep'");
    eventually("a commit waits for the standby", || server.con().execute(&sql, &[]).unwrap() > 0);
}

/// What no standby has confirmed is no grant, however the wait for the standby ends.
#[test]
fn what_no_standby_has_confirmed_is_no_grant() {
    let server = PostgresServer::builder().start();
    let connect = |limit| patient(&server.url()).response_timeout(limit).connect().unwrap();
    let (backend, ann) = (connect(SOON), OwnerId::new("ann:1"));
    for (count, way) in ["pg_cancel_backend", "pg_terminate_backend", "a restart"].into_iter().enumerate() {
        let lock = lock(way);
        let ask = |backend: &PostgresBackend| ask(backend, &lock, &ann);
        server.set_standby("nobody");
        thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&backend));
            if way == "a restart" {
                let waits = "select 1 from pg_stat_activity where wait_event = 'SyncRep'";
                eventually("it waits", || server.con().execute(waits, &[]).unwrap() > 0);
                server.restart();
            } else {
                end_waiting_commit(&server, way);
            }
            let answer = asked.join().unwrap();
            assert!(is_unavailable(&answer), "{way}: {answer:?}");
        });
        until_grants_to(&server, &ann, count + 1);
        let answer = ask(&connect(Duration::from_secs(3)));
        assert!(is_unavailable(&answer), "{way}: the repeat finds it, and must not tell: {answer:?}");
        server.set_standby("");
        eventually("the standby is needed no more", || matches!(ask(&backend), Ok(Acquired::Granted { .. })));
    }
}

struct Heard(Sender<String>);

impl WakeSink for Heard {
    fn wake(&self, wake: Wake<'_>) {
        let _ = self.0.send(format!("{wake:?}"));
    }
}

/// What the next one in the queue is told of a hand-over whose commit was cancelled, and then of the loss of another lock.
fn told_of_a_cancelled_hand_over(wake_ups: WakeUps) -> Vec<String> {
    let server = PostgresServer::builder().start();
    let connect = || patient(&server.url()).response_timeout(SOON).wake_ups(wake_ups);
    let (ours, theirs) = (connect().connect().unwrap(), connect().connect().unwrap());
    let (lock, other, client) = (lock("x"), lock("other"), ClientId::random());
    let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new(&format!("{client}:1")));
    let (sender, heard) = channel();
    let _subscription = ours.subscribe(client, Arc::new(Heard(sender))).unwrap();
    let Acquired::Granted { token, .. } = ask(&theirs, &lock, &ann).unwrap() else { panic!("it is free") };
    ask(&theirs, &other, &ann).unwrap();
    for lock in [&lock, &other] {
        assert!(matches!(ask(&ours, lock, &bob), Ok(Acquired::Queued { .. })));
    }
    server.set_standby("nobody");
    thread::scope(|scope| {
        let released =
            scope.spawn(|| only(theirs.release(&[Hold::new(&lock, &ann, RequestId::new(1), token)])).is_ok());
        end_waiting_commit(&server, "pg_cancel_backend");
        assert!(!released.join().unwrap());
    });
    until_grants_to(&server, &bob, 1); // it was handed over there
    let mut all = Vec::new();
    if matches!(wake_ups, WakeUps::Poll(_)) {
        all.push(heard.recv_timeout(SOON).unwrap()); // a look while the server still waits for a standby
    }
    server.set_standby("");
    // Messages keep their order, and looks have one.
    theirs.force_release(&other).unwrap();
    while all.last().is_none_or(|last: &String| !last.contains("\"other\"")) {
        all.push(heard.recv_timeout(SOON).unwrap());
    }
    all
}

/// A hand-over that no standby has confirmed is not told to the next waiter.
#[test]
fn a_hand_over_no_standby_has_confirmed_is_not_told() {
    let told = told_of_a_cancelled_hand_over(WakeUps::Listen);
    assert!(told.iter().all(|told| told.contains("\"other\"")), "{told:?}");
    // A look finds it, and has it asked for again.
    let told = told_of_a_cancelled_hand_over(WakeUps::Poll(Duration::from_millis(20)));
    assert!(told.iter().all(|told| told.contains("\"other\"") || told.starts_with("Recheck")), "{told:?}");
    assert!(told.len() > 1, "{told:?}");
}

/// Calls that wait for a standby in vain do not fill the server with sessions. The server does not end a commit that waits for
/// its standby by itself. So the client does, or each call would leave a session behind.
#[test]
fn vain_waits_for_a_standby_do_not_fill_the_server() {
    let server = PostgresServer::builder().start();
    let limit = Duration::from_millis(500);
    let backend = patient(&server.url()).response_timeout(limit).connect_within(SOON).connect().unwrap();
    server.set_standby("nobody");
    let ours = "select count(*) from pg_stat_activity where application_name = 'fairlock'";
    let mut con = server.con();
    let mut most = 0;
    thread::scope(|scope| {
        let backend = &backend;
        let ask_for = move |thread: usize| {
            for turn in 0..6 {
                let (lock, owner) = (lock(&format!("{thread} {turn}")), OwnerId::new("ann:1"));
                assert!(is_unavailable(&ask(backend, &lock, &owner)));
            }
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || ask_for(thread))).collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            most = most.max(con.query_one(ours, &[]).unwrap().get::<_, i64>(0));
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert!((1..=8).contains(&most), "{most} sessions");
    server.set_standby("");
    let (lock, owner) = (lock("x"), OwnerId::new("ann:1"));
    eventually("all is well again", || ask(&backend, &lock, &owner).is_ok());
}
