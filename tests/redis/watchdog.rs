//! The watchdog on a real server, with the default times: outages, refusals, cut connections, hand-overs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

/// The limit for anything immediate, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// How long an outage is watched.
const OUTAGE: Duration = Duration::from_secs(4);

/// A client with the default times: short leases do not show the watchdog's spinning.
fn client(server: &RedisServer) -> Client {
    Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap()
}

/// A waiter's place is due every 1.7 s, so the test need not wait for a hold's renewal. The hold's client has no line yet: for
/// all that it knows the server is there. Wake-ups that are cut off have no their own lines.
#[test]
fn a_server_that_is_gone_costs_one_line_and_little_work() {
    let _alone = Alone::here();
    keep_log_lines(log::LevelFilter::Warn);
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server), client(&server));
    let guard = holder.fair_lock("gone").unwrap().lock().unwrap();
    let request = waiter.fair_lock("gone").unwrap().request().unwrap();
    server.kill();
    let (before, started) = (processor_time(), Instant::now());
    eventually(SOON, "the outage has been noticed", || !log_lines("fairlock::watchdog").is_empty());
    while started.elapsed() < OUTAGE {
        std::thread::sleep(Duration::from_millis(50)); // the silence under test
    }
    let lines = log_lines("fairlock::");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("an outage has begun, affecting 0 holds and 1 waiter of "), "{lines:?}");
    let worked = processor_time() - before;
    assert!(worked < OUTAGE / 4, "{worked:?} of processor time in {OUTAGE:?}");
    drop((request, guard));
}

/// The processor time of this process so far.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10) // a hundred ticks a second, on every Linux
}

#[test]
fn a_server_that_refuses_writes_is_asked_a_few_times_a_second() {
    let _alone = Alone::here();
    keep_log_lines(log::LevelFilter::Warn);
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.fair_lock("refuses").unwrap();
    let guard = lock.lock().unwrap();
    let requests: Vec<_> =
        (0..20).map(|_| lock.owned_by(&client.new_owner()).unwrap().request().unwrap()).collect();
    server.query::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    // After a gap in its wake-ups the client renews everything, even the hold, which would be due in ten seconds.
    server.query::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually(SOON, "the gap has been noticed", || client.stats().gaps > 0);
    eventually(SOON, "the outage has been noticed", || !log_lines("fairlock::watchdog").is_empty());
    let (before, started) = (scripts_run(&server), Instant::now());
    while started.elapsed() < OUTAGE {
        std::thread::sleep(Duration::from_millis(50)); // the silence under test
    }
    let asked = scripts_run(&server) - before;
    // Two scripts each time: one for the hold, and one for all places.
    assert!((3..60).contains(&asked), "asked {asked} times in {OUTAGE:?}");
    assert_eq!(log_lines("fairlock::watchdog").len(), 1);

    server.query::<()>(&["REPLICAOF", "NO", "ONE"]);
    eventually(SOON, "the end of the outage is logged", || log_lines("fairlock::watchdog").len() == 2);
    let lines = log_lines("fairlock::watchdog");
    assert!(lines[1].contains("it affected 1 hold and 20 waiters"), "{lines:?}");
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    for mut request in requests {
        request.wait_for(SOON).unwrap().guard().expect("the waiter has kept its place").unlock().unwrap();
    }
    assert_no_residue(&server, &[]);
}

/// A server with `timeout`, or a firewall, cuts connections that were idle for a while.
#[test]
fn a_request_whose_idle_connection_was_cut_is_granted_in_its_turn() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let client = client(&server);
    let (lock, other) = (client.fair_lock("cut").unwrap(), client.fair_lock("other").unwrap());
    for name in ["free", "held"] {
        let guard = other.lock().unwrap();
        if name == "free" {
            guard.unlock().unwrap();
        } else {
            guard.leak();
        }
        let lock = if name == "free" { &lock } else { &other };
        let killed: u32 = server.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(killed > 0);
        let owner = client.new_owner();
        let mut request = lock.owned_by(&owner).unwrap().request().unwrap();
        if name == "held" {
            eventually(SOON, "the request has a place", || request.rank() == Some(0));
            other.unlock().unwrap();
        }
        request.decided().recv_timeout(SOON).expect("the client asks again");
        request.wait_for(Duration::ZERO).unwrap().guard().expect("the request was granted").unlock().unwrap();
    }
    drop(client);
    assert_no_residue(&server, &[]);
}

/// Without any message, and without a caller that waits on the request.
#[test]
fn a_request_is_granted_when_a_dead_holders_lease_ends() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let lease = Duration::from_secs(1);
    let backend = RedisBackend::builder(&server.url()).response_timeout(lease / 2).connect().unwrap();
    let dead = Client::builder(backend).lease(lease).build().unwrap();
    let backend = RedisBackend::connect(&server.url()).unwrap();
    // Heartbeats would find it as well, but later.
    let waiter = Client::builder(backend).place_ttl(Duration::from_secs(60)).build().unwrap();
    // The watchdog sleeps until the renewal of this hold, in ten seconds.
    let other = waiter.fair_lock("other").unwrap().lock().unwrap();
    dead.fair_lock("dead").unwrap().lock().unwrap().leak();
    let taken = Instant::now();
    drop(dead); // neither renewed nor released any more
    let request = waiter.fair_lock("dead").unwrap().request().unwrap();
    request.decided().recv_timeout(SOON).expect("the waiter asks");
    let took = taken.elapsed();
    assert!(took < lease + Duration::from_secs(1), "granted {took:?} after the dead holder");
    request.wait().unwrap().unlock().unwrap();
    other.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_hold_that_was_handed_over_has_its_full_lease_soon() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server), client(&server));
    let guard = holder.fair_lock("raised").unwrap().lock().unwrap();
    let request = waiter.fair_lock("raised").unwrap().request().unwrap();
    guard.unlock().unwrap();
    let guard = request.wait().unwrap();
    eventually(Duration::from_secs(1), "the lease is raised", || guard.valid_for() > Duration::from_secs(28));
    server.stop();
    std::thread::sleep(Duration::from_secs(6)); // longer than its place lived
    assert!(!guard.is_lost());
    server.cont();
    guard.unlock().unwrap();
    assert_no_residue(&server, &[]);
}

#[test]
fn a_turn_costs_two_scripts_and_a_third_only_after_a_tenth_of_a_second() {
    const TURNS: u64 = 40;
    let _alone = Alone::here();
    let server = RedisServer::start();
    let clients = [(); 4].map(|()| {
        let backend = RedisBackend::connect(&server.url()).unwrap();
        // Without heartbeats. A handed-over hold has less than two thirds of its lease.
        let times = Client::builder(backend).place_ttl(Duration::from_secs(60));
        times.lease(Duration::from_secs(300)).build().unwrap()
    });
    clients[0].fair_lock("turns").unwrap().lock().unwrap().unlock().unwrap(); // loads the scripts
    let before = scripts_run(&server);
    let long_turns: u64 = std::thread::scope(|scope| {
        let workers = clients.each_ref().map(|client| {
            scope.spawn(|| {
                let lock = client.fair_lock("turns").unwrap();
                let turn = |_| {
                    let guard = lock.lock().unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                    // From the moment when the client heard of it: this thread may have been woken much later.
                    let held = client.held()[0].held_for;
                    let before_unlock = Instant::now();
                    guard.unlock().unwrap();
                    u64::from(held + before_unlock.elapsed() >= Duration::from_millis(85))
                };
                (0..TURNS).map(turn).sum::<u64>()
            })
        });
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let by_wake_up: u64 = clients.iter().map(|client| client.stats().granted_by_wake_up).sum();
    assert!(by_wake_up > 3 * TURNS, "only {by_wake_up} were handed over");
    let renewed = scripts_run(&server) - before - 2 * 4 * TURNS;
    assert!(renewed <= long_turns, "{renewed} renewals, and {long_turns} turns that were long enough");
    drop(clients);
    assert_no_residue(&server, &[]);
}
