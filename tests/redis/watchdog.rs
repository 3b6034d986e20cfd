//! The watchdog on a real server, with the default times: outages, refusals, cut connections.

use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::server_state::scripts_run;
use fairlock_tests::{CleanServer, RedisServer, eventually};

/// The limit for anything immediate, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// How long an outage is watched.
const OUTAGE: Duration = Duration::from_secs(4);

/// A client with the default times: short leases do not show the watchdog's spinning.
fn client(server: &RedisServer) -> Client {
    Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap()
}

/// A waiter's place is due every 1.7 s, so the test need not wait for a hold's renewal. The hold's client logs nothing yet: for
/// all that it knows, the server is there. Wake-ups that are cut off have no lines of their own.
#[test]
fn a_server_that_is_gone_costs_one_line_and_little_work() {
    let server = CleanServer::start();
    keep_log_lines(log::LevelFilter::Warn);
    let (holder, waiter) = (client(&server), client(&server));
    let guard = holder.fair_lock("gone").unwrap().lock().unwrap();
    let request = waiter.fair_lock("gone").unwrap().request().unwrap();
    server.kill();
    let (before, started) = (processor_time(), Instant::now());
    eventually("the outage has been noticed", || !log_lines("fairlock::watchdog").is_empty());
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
    let server = CleanServer::start();
    keep_log_lines(log::LevelFilter::Warn);
    let client = client(&server);
    let lock = client.fair_lock("refuses").unwrap();
    let guard = lock.lock().unwrap();
    let requests: Vec<_> =
        (0..20).map(|_| lock.owned_by(&client.new_owner()).unwrap().request().unwrap()).collect();
    server.query::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    // After a gap in its wake-ups the client renews everything, even the hold, which would be due in ten seconds.
    server.query::<u32>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("the gap has been noticed", || client.stats().gaps > 0);
    eventually("the outage has been noticed", || !log_lines("fairlock::watchdog").is_empty());
    let (before, started) = (scripts_run(&server), Instant::now());
    while started.elapsed() < OUTAGE {
        std::thread::sleep(Duration::from_millis(50)); // the silence under test
    }
    let asked = scripts_run(&server) - before;
    // Two scripts each time: one for the hold, and one for all places.
    assert!((3..60).contains(&asked), "asked {asked} times in {OUTAGE:?}");
    assert_eq!(log_lines("fairlock::watchdog").len(), 1);

    server.query::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually("the end of the outage is logged", || log_lines("fairlock::watchdog").len() == 2);
    let lines = log_lines("fairlock::watchdog");
    assert!(lines[1].contains("it affected 1 hold and 20 waiters"), "{lines:?}");
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    for mut request in requests {
        request.wait_for(SOON).unwrap().guard().expect("the waiter has kept its place").unlock().unwrap();
    }
}

/// A request whose idle connection was cut is granted in its turn. A server with `timeout`, or a firewall, cuts connections that
/// were idle for a while.
#[test]
fn a_request_whose_connection_was_cut_has_its_turn() {
    let server = CleanServer::start();
    let client = client(&server);
    let (lock, other) = (client.fair_lock("cut").unwrap(), client.fair_lock("other").unwrap());
    for (is_held, lock) in [(false, &lock), (true, &other)] {
        let guard = other.lock().unwrap();
        if is_held {
            guard.leak()
        } else {
            guard.unlock().unwrap()
        }
        let killed: u32 = server.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(killed > 0);
        let mut request = lock.owned_by(&client.new_owner()).unwrap().request().unwrap();
        if is_held {
            eventually("the request has a place", || request.rank() == Some(0));
            other.unlock().unwrap();
        }
        request.decided().recv_timeout(SOON).expect("the client asks again");
        request.wait_for(Duration::ZERO).unwrap().guard().expect("the request was granted").unlock().unwrap();
    }
}
