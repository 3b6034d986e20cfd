//! Processes that stand still.

use fairlock::settings::Discipline;
use fairlock::{Client, RedisBackend};
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::server_state::{queue, until_in_queue};
use fairlock_tests::{Alone, RedisServer, Worker, assert_no_residue, eventually, signals};

use crate::support::{SOON, until_free};

/// See `lock_worker.rs`.
fn worker(words: &[&str]) -> Worker {
    let mut worker = Worker::start(env!("CARGO_BIN_EXE_lock_worker"), words);
    worker.go();
    worker
}

/// A waiter that is stopped before it has read its first answer goes to the tail: it can't name its place. The first heartbeat names it.
fn until_it_knows_its_ticket(server: &RedisServer, lock: &str, member: &str) {
    let record = format!("fairlock_record:{{{lock}}}");
    let place = || server.query::<String>(&["HGET", &record, member]);
    eventually("the waiter names its ticket", || {
        place().split(' ').nth(5).is_some_and(|marks| !marks.contains('n'))
    });
}

/// A7, with default times: it is granted the lock while it stands still, and cannot take it before that grant is over.
#[test]
fn a_waiter_that_was_stopped_when_its_turn_came_is_served_next() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff).connect().unwrap();
    let ours = Client::new(backend).unwrap();
    let guard = take(&ours.fair_lock("turn").unwrap());
    let first = worker(&["try", "hand_off", &server.url(), "turn", "120000"]);
    until_in_queue(&server, "turn", 1);
    let member = queue(&server, "turn").remove(0);
    until_it_knows_its_ticket(&server, "turn", &member);
    let [second, third, fourth] = [(); 3].map(|()| request(&ours, "turn"));
    signals::stop(first.child());
    guard.unlock().unwrap();
    let second = granted(second, 2 * SOON);
    signals::cont(first.child());
    eventually("the first is back before all others", || queue(&server, "turn").first() == Some(&member));
    second.unlock().unwrap();
    first.expect("got", SOON);
    for request in [third, fourth] {
        granted(request, SOON).unlock().unwrap();
    }
    assert_eq!(ours.stats().places_lost, 0);
    drop((ours, first));
    until_free(&server, "turn");
    assert_no_residue(&server, &[]);
}
