//! A name that clients of discipline `Redisson` use as well, which stand where Java would: no order, but no hold beside another, a
//! warning, and looks by our first waiter.

use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::log_lines::{keep_log_lines, log_lines};

use crate::support::*;

/// A client in Redisson's queue, without heartbeats that could interfere.
fn redisson(server: &RedisServer) -> Client {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::builder(backend).place_ttl(LONG).lease(LONG).build().unwrap()
}

/// The first waiter in the queue finds the release of a foreign hold by its own look. The release tells our waiter nothing, and
/// neither a heartbeat nor the end of the lease comes before the test is over.
#[test]
fn the_first_waiter_finds_a_foreign_release_by_itself() {
    let server = CleanServer::start();
    let (ours, theirs) = (client(&server.url()), redisson(&server));
    for (name, theirs) in [("fair", theirs.fair_lock("fair")), ("plain", theirs.plain_lock("plain"))] {
        let guard = theirs.unwrap().lock().unwrap();
        let waiting = request(&ours, name);
        until_in_queue(&server, name, 1);
        assert!(ours.fair_lock(name).unwrap().try_lock().unwrap().guard().is_none());
        guard.unlock().unwrap();
        let released = Instant::now();
        let guard = granted(waiting, SOON);
        let waited = released.elapsed();
        assert!(waited < Duration::from_millis(500) + SLACK, "{waited:?}");
        guard.unlock().unwrap();
    }
}

/// It stood behind a hold of ours, which was lost; the heartbeat of 2 s says when to look.
#[test]
fn a_waiter_looks_too_if_the_foreign_hold_came_after_it() {
    let server = CleanServer::start();
    let ours = with_places(&server.url(), Duration::from_secs(6));
    let (guard, waiting) = (take(&ours, "later"), request(&ours, "later"));
    until_in_queue(&server, "later", 1);
    let before = scripts_run(&server);
    server.query::<()>(&["EVAL", JAVA_TAKES, "1", "later"]);
    eventually("a heartbeat, and a look", || scripts_run(&server) >= before + 3);
    server.query::<()>(&["DEL", "later"]);
    let released = Instant::now();
    let next = granted(waiting, SOON);
    let waited = released.elapsed();
    assert!(waited < Duration::from_millis(500) + SLACK, "{waited:?}");
    next.unlock().unwrap();
    drop(guard);
}

/// The holder's field by Redisson's rules, in place of any other.
const JAVA_TAKES: &str = "
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], '00000000-0000-4000-8000-000000000000:1', 1)
    redis.call('PEXPIRE', KEYS[1], 60000)";

#[test]
fn clients_of_two_disciplines_on_one_name_are_warned_of_once() {
    keep_log_lines(log::LevelFilter::Warn);
    let server = CleanServer::start();
    let (ours, theirs) = (client(&server.url()), redisson(&server));
    let guard = take(&theirs, "both");
    let behind = request(&theirs, "both");
    let waiting = [(); 3].map(|()| request(&ours, "both"));
    let warned = || log_lines("lock `both`: clients wait for it in Redisson's queue").len();
    eventually("all of them are in the queue", || queue(&server, "both").len() == 3);
    eventually("the warning", || warned() == 1);
    assert!(ours.fair_lock("both").unwrap().try_lock().unwrap().guard().is_none());
    guard.unlock().unwrap();
    granted(behind, SOON).unlock().unwrap();
    waiting.into_iter().for_each(|waiting| granted(waiting, SOON).unlock().unwrap());
    assert_eq!(warned(), 1);
}

/// A plain lock has no queue that ours could have an order with.
#[test]
fn a_foreign_hold_without_a_queue_is_nothing_to_warn_of() {
    keep_log_lines(log::LevelFilter::Warn);
    let server = CleanServer::start();
    let (ours, theirs) = (client(&server.url()), redisson(&server));
    let guard = theirs.plain_lock("alone").unwrap().lock().unwrap();
    let waiting = request(&ours, "alone");
    until_in_queue(&server, "alone", 1);
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    assert_eq!(log_lines("lock `alone`"), [""; 0]);
}

/// Without the right to Redisson's queue all works, and one look is refused. Each look without the right to the key is an entry
/// in the server's log, or one more of its count.
#[test]
fn without_the_right_to_redissons_queue_all_works() {
    let server = CleanServer::start();
    let words = "ACL SETUSER bob on >canary +@all &* ~log ~fairlock_*:{log} ~fairlock_life";
    server.query::<()>(&words.split(' ').collect::<Vec<_>>());
    let (ours, theirs) = (client(&server.url_as("bob", "canary")), redisson(&server));
    (0..40).for_each(|_| a_turn(&ours, "log"));
    assert_eq!(refusals(&server), 0, "nobody else uses the name");
    let guard = take(&theirs, "log");
    let mut waiting: Vec<_> = (0..20).map(|_| request(&ours, "log")).collect();
    until_in_queue(&server, "log", 20);
    guard.unlock().unwrap();
    waiting.drain(..).for_each(|waiting| granted(waiting, SOON).unlock().unwrap());
    assert_eq!(refusals(&server), 1);
}

fn refusals(server: &RedisServer) -> i64 {
    let refusals: Vec<Vec<redis::Value>> = server.query(&["ACL", "LOG"]);
    let count = |entry: &Vec<redis::Value>| match entry[..] {
        [_, redis::Value::Int(count), ..] => count,
        _ => panic!("{entry:?}"),
    };
    refusals.iter().map(count).sum()
}
