//! Wall clocks that jump, run by `tests/chaos/faults/clocks`. The server's clock ends leases and makes tokens; a client's
//! has no effect.
//!
//! `server_with_a_clock` starts the servers. A server's time follows the file `clock` in its dir.
#![forbid(unsafe_code)]

#[path = "clock_support.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_tests::{Alone, RedisServer, WorkDir, Worker, assert_no_residue, eventually, set_wall_clock};

use crate::support::{
    LEASE, PROGRAM, SLACK, SOON, assert_nothing_is_left_but_late_places, assert_within, client, granted,
    heartbeat_bound, request, take,
};

fn server() -> RedisServer {
    assert!(
        std::env::var_os("FAIRLOCK_CLOCK").is_some(),
        "only the servers that tests/chaos/faults/clocks starts have clocks that jump"
    );
    RedisServer::start()
}

fn sets(clock: &Path, seconds: i64) {
    set_wall_clock(clock, i32::try_from(1000 * seconds).unwrap(), 0);
}

fn now() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

/// How many seconds the server's clock is ahead of ours.
fn ahead(server: &RedisServer) -> i64 {
    let (seconds, _): (i64, i64) = server.query(&["TIME"]);
    seconds - now()
}

#[track_caller]
fn jump(server: &RedisServer, seconds: i64) -> Instant {
    sets(&server.dir().join("clock"), seconds);
    let jumped = Instant::now();
    eventually("the server's clock has jumped", || (ahead(server) - seconds).abs() <= 2);
    jumped
}

/// F1. Leases end, and with a jump of days the queue's keys as well. The order in which the waiters asked stays.
#[test]
fn a_server_clock_that_jumps_ahead_costs_no_waiter_its_turn() {
    let _alone = Alone::here();
    for seconds in [200, 7200, 172_800] {
        let server = server();
        let clients: Vec<_> = (0..5).map(|_| client(&server)).collect();
        let guard = take(&clients[0], "queue");
        let lock = clients[0].fair_lock("queue").unwrap();
        let waiting = clients[1..].iter().zip(1..).map(|(client, number)| {
            let waiting = request(client, "queue");
            eventually("it stands in the queue", || lock.admin().inspect().unwrap().queue_length == number);
            waiting
        });
        let waiting: Vec<_> = waiting.collect();
        jump(&server, seconds);
        let mut before = guard.token();
        for waiting in waiting {
            let guard = granted(waiting, SOON);
            assert!(guard.token() > before);
            before = guard.token();
            guard.unlock().unwrap();
        }
        assert!(guard.unlock().is_err());
        assert!(clients.iter().all(|client| client.stats().places_lost == 0));
        drop(clients);
        assert_nothing_is_left_but_late_places(&server, &[]);
    }
}

/// F2. Renewals correct the leases after the server clock is set back. Every lease grows by an hour. Renewals of a live holder
/// correct that, so that its lock is free a lease after its death.
#[test]
fn renewals_correct_leases_after_the_clock_is_set_back() {
    let _alone = Alone::here();
    let server = server();
    let waiter = client(&server);
    let mut holder = Worker::start(PROGRAM, &["hold", "hand_off", &server.url(), "back", "3000"]);
    holder.go();
    holder.expect("held", SOON);
    let token = waiter.fair_lock("back").unwrap().admin().inspect().unwrap().holder().unwrap().token.unwrap();
    let waiting = request(&waiter, "back");
    let jumped = jump(&server, -3600);
    let pttl = || server.query::<i64>(&["PTTL", "back"]);
    eventually("a renewal corrects the lease", || (1..=3000).contains(&pttl()));
    assert_within(jumped, LEASE / 3 + 2 * SLACK, "that");
    assert!(waiting.decided().try_recv().is_err());
    holder.kill();
    let died = Instant::now();
    let guard = granted(waiting, SOON);
    assert_within(died, LEASE + heartbeat_bound(), "the grant");
    assert!(guard.token() > token);
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

/// F2. Tokens grow over a clock that was days ahead and a day without use. The last number is three days ahead of the corrected
/// clock. It is kept until the clock has caught up.
#[test]
fn tokens_grow_over_a_clock_that_was_days_ahead() {
    let _alone = Alone::here();
    let server = server();
    let ours = client(&server);
    jump(&server, 259_200);
    let ahead = take(&ours, "idle");
    let first = ahead.token();
    ahead.unlock().unwrap();
    jump(&server, 0);
    let right = take(&ours, "idle");
    let second = right.token();
    assert!(second > first);
    right.unlock().unwrap();
    jump(&server, 90_000); // 25 hours
    let later = take(&ours, "idle");
    assert!(later.token() > second, "{} after {second}", later.token());
    later.unlock().unwrap();
    drop(ours);
    assert_nothing_is_left_but_late_places(&server, &[]);
}

/// F4. A client uses its monotonic clock only.
#[test]
fn a_client_whose_wall_clock_jumps_keeps_its_lock_and_its_place() {
    let _alone = Alone::here();
    let server = server();
    let ours = client(&server);
    let dir = WorkDir::new();
    let clock = dir.file("clock");
    let with_a_clock = concat!(env!("CARGO_MANIFEST_DIR"), "/chaos/faults/with_a_clock");
    let start = |arguments: &[&str]| {
        let all = [&[clock.to_str().unwrap(), PROGRAM], arguments].concat();
        let mut worker = Worker::start(with_a_clock, &all);
        worker.go();
        worker
    };
    let mut holder = start(&["hold", "hand_off", &server.url(), "jumpy", "3000"]);
    holder.expect("held", SOON);
    let lock = ours.fair_lock("jumpy").unwrap();
    let waiter = start(&["try", "hand_off", &server.url(), "jumpy", "60000"]);
    eventually("the waiter is in the queue", || lock.admin().inspect().unwrap().queue.len() == 1);
    let state = lock.admin().inspect().unwrap();
    let (token, place) = (state.holder().unwrap().token, state.queue[0].owner.clone());
    for seconds in [7200, -7200, 60, 0] {
        sets(&clock, seconds);
        let seen = Command::new(with_a_clock).arg(&clock).args(["date", "+%s"]).output().unwrap().stdout;
        let seen: i64 = String::from_utf8(seen).unwrap().trim().parse().unwrap();
        assert!((seen - now() - seconds).abs() <= 2, "its clock did not jump by {seconds} s");
        // Longer than it would take to lose the lock.
        let since = Instant::now();
        while since.elapsed() < LEASE / 2 {
            let left: i64 = server.query(&["PTTL", "jumpy"]);
            assert!((1..=3000).contains(&left), "{left} ms are left after {seconds} s");
            thread::sleep(Duration::from_millis(20));
        }
    }
    let state = lock.admin().inspect().unwrap();
    assert_eq!((state.holder().unwrap().token, &state.queue[0].owner), (token, &place));
    holder.go();
    holder.expect("unlocked", SOON);
    waiter.expect("got", SOON);
    drop((holder, waiter));
    eventually("the lock is free", || !lock.is_locked().unwrap());
    assert_no_residue(&server, &[]);
}
