//! Group A: processes that are killed, stopped or starved, or end in unusual ways.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, Worker, assert_no_residue, eventually, signals};

use crate::support::{
    LEASE, SLACK, SOON, client, granted, lock_worker, ms, patient, queue, request, take, until_free,
    until_in_queue, warm_server, worker,
};

/// Promise P5: the lease, and this much more.
const PROMPT: Duration = ms(250);

/// A process that holds the lock, with a lease of 1.5 s.
fn holder(words: &[&str]) -> Worker {
    let mut holder = worker(words);
    holder.go();
    holder.expect("held", SOON);
    holder
}

/// A process with one waiter in the queue.
fn waiter(server: &RedisServer, name: &str, place_ms: &str) -> Worker {
    let mut waiter = lock_worker(&["wait", "hand_off", &server.url(), name, "1", place_ms]);
    waiter.go();
    waiter.expect("waiting", SOON);
    waiter
}

/// A1, A8, A10: the waiter gets the lock when the lease ends, without any message.
#[test]
fn a_holder_that_ended_silently_is_replaced_when_its_lease_ends() {
    let _alone = Alone::here();
    for how in ["kill", "exit", "abort", "panic", "static"] {
        let server = RedisServer::start();
        let ours = client(&server.url());
        let mut holder = holder(&["end", &server.url(), "ended", "1500", how]);
        let waiting = request(&ours, "ended");
        if how == "kill" {
            holder.kill();
        } else {
            holder.go();
            assert!(holder.ends_well(SOON).is_some(), "{how}: the process hangs at its end");
        }
        let ended = Instant::now();
        let guard = granted(waiting, SOON);
        assert!(ended.elapsed() <= LEASE + PROMPT, "{how}: {:?}", ended.elapsed());
        guard.unlock().unwrap();
        assert_no_residue(&server, &[]);
    }
}

/// A2, A3. A holder that was stopped for longer than its lease knows its loss at once: the classic pause.
#[test]
fn a_holder_stopped_past_its_lease_knows_its_loss() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = client(&server.url());
    let mut holder = holder(&["look", &server.url(), "still", "1500"]);
    let waiting = request(&ours, "still");
    signals::stop(holder.child());
    let stopped = Instant::now();
    let guard = granted(waiting, SOON);
    assert!(stopped.elapsed() <= LEASE + PROMPT, "{:?}", stopped.elapsed());
    holder.go();
    signals::cont(holder.child());
    holder.expect("lost", SOON);
    holder.go();
    holder.expect("refused", SOON);
    assert!(!guard.is_lost() && guard.renew().is_ok());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
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
    let mut first = lock_worker(&["try", "hand_off", &server.url(), "turn", "120000"]);
    first.go();
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

/// A5: at the head, in the middle and at the tail. The server sees each death at once.
#[test]
fn killed_waiters_delay_no_other_wherever_they_stood() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = patient(&server.url());
    let guard = take(&ours.fair_lock("queue").unwrap());
    let mut dead = Vec::new();
    let mut live = Vec::new();
    for _ in 0..2 {
        dead.push(waiter(&server, "queue", "60000"));
        live.push(request(&ours, "queue"));
    }
    dead.push(waiter(&server, "queue", "60000"));
    dead.iter_mut().for_each(Worker::kill);
    let heard = || server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "fairlock:*"]).len();
    eventually("the server sees that they are gone", || heard() == 1);
    let mut released = Instant::now();
    guard.unlock().unwrap();
    for request in live {
        let guard = granted(request, SOON);
        assert!(released.elapsed() < SLACK, "{:?}", released.elapsed());
        released = Instant::now();
        guard.unlock().unwrap();
    }
    take(&ours.fair_lock("queue").unwrap()).unlock().unwrap();
    assert_no_residue(&server, &["fairlock_queue:{queue}", "fairlock_record:{queue}"]);
}

/// A7: Redisson's issue 3004 hung for ever.
#[test]
fn a_stopped_waiter_is_passed_over_and_gets_its_place_back() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = client(&server.url());
    let guard = take(&ours.fair_lock("again").unwrap());
    let mut still = worker(&["look", &server.url(), "again", "1500"]);
    still.go();
    until_in_queue(&server, "again", 1);
    let member = queue(&server, "again").remove(0);
    until_it_knows_its_ticket(&server, "again", &member);
    let (second, third) = (request(&ours, "again"), request(&ours, "again"));
    signals::stop(still.child());
    thread::sleep(ms(2500)); // longer than its place lives, as tested
    guard.unlock().unwrap();
    let second = granted(second, SOON);
    signals::cont(still.child());
    let lock = ours.fair_lock("again").unwrap();
    eventually("the waiter is first again, and heard", || {
        let first = lock.inspect().unwrap().queue.remove(0);
        queue(&server, "again").first() == Some(&member) && first.place_left > Some(Duration::ZERO)
    });
    second.unlock().unwrap();
    still.expect("held", SOON);
    assert!(third.decided().try_recv().is_err());
    still.go();
    still.expect("valid", SOON);
    still.go();
    still.expect("unlocked", SOON);
    granted(third, SOON).unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// A8: the server grants the lock, and the client dies before it knows.
#[test]
fn an_unread_grant_of_a_killed_client_ends_with_its_lease() {
    let _alone = Alone::here();
    let server = warm_server();
    let proxy = Proxy::start(server.port());
    let ours = client(&server.url());
    let mut dead = worker(&["look", &proxy.url(), "unread", "1500"]);
    proxy.set_all(&Traffic::INWARD, Rule::Hold);
    dead.go();
    eventually("the lock is granted", || server.query(&["EXISTS", "unread"]));
    let granted_at = Instant::now();
    dead.kill();
    let guard = granted(request(&ours, "unread"), SOON);
    // The client may have asked again just before it died.
    assert!(granted_at.elapsed() <= LEASE + PROMPT + SLACK, "{:?}", granted_at.elapsed());
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// A12: a client that needs a new connection gets the reason; a connected one goes on.
#[test]
fn without_descriptors_a_new_client_fails_and_a_hold_is_renewed() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let mut poor = holder(&["descriptors", &server.url(), "poor", "1500"]);
    poor.go();
    let said = poor.next(SOON);
    assert!(said.contains("Too many open files"), "{said}");
    thread::sleep(LEASE * 2); // renewals come in this time
    poor.go();
    poor.expect("valid", SOON);
    poor.go();
    assert_eq!(poor.ends_well(SOON), Some(true));
    until_free(&server, "poor");
    assert_no_residue(&server, &[]);
}

/// Signals: a handler interrupts a read from the server. The outcome is open, so the request is repeated.
#[test]
fn signals_that_interrupt_calls_cost_no_turn() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let mut worker = worker(&["signals", &server.url(), "signals", "30000", "500"]);
    worker.go();
    worker.expect("held", SOON);
    worker.go();
    let mut said = None;
    let started = Instant::now();
    while said.is_none() && started.elapsed() < Duration::from_secs(60) {
        signals::interrupt(worker.child());
        said = worker.next_or_none(ms(2));
    }
    let said = said.expect("the process ends");
    assert!(said.starts_with("granted 2000 interrupted "), "{said}");
    assert!(!said.ends_with(" 0"), "{said}");
    until_free(&server, "signals");
    assert_no_residue(&server, &[]);
}
