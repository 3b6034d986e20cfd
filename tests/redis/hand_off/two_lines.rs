//! Beside Redisson's fair line: a client of discipline `Redisson` stands where Java would, with the same keys and channels.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};

use crate::support::*;

/// After this many of our turns the other line has one.
const TURNS: u64 = 16;

/// A client in Redisson's line, without heartbeats that could interfere.
fn redisson(server: &RedisServer) -> Client {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::builder(backend).place_ttl(LONG).lease(LONG).build().unwrap()
}

/// An entry in Redisson's line without a waiter; its time lasts this long.
fn ghost(server: &RedisServer, name: &str, millis: i64) {
    let ends = (server.time_ms() + millis).to_string();
    server.query::<()>(&["RPUSH", &format!("redisson_lock_queue:{{{name}}}"), "ghost:1"]);
    server.query::<()>(&["ZADD", &format!("redisson_lock_timeout:{{{name}}}"), &ends, "ghost:1"]);
}

/// Ends the workers however the test ends: those of one that fails would go on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each worker takes turns on the lock until this test is over, which gets their counts.
fn beside(workers: &[&Client], name: &str, test: impl FnOnce(&[AtomicU64])) {
    let done = AtomicBool::new(false);
    let counts: Vec<AtomicU64> = workers.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let ends = Ends(&done);
        let busy: Vec<_> = workers
            .iter()
            .zip(&counts)
            .map(|(client, count)| {
                let (lock, owner, done) = (client.fair_lock(name).unwrap(), client.new_owner(), &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        lock.owned_by(&owner).unwrap().lock().unwrap().unlock().unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        test(&counts);
        drop(ends);
        busy.into_iter().for_each(join);
    });
}

#[test]
fn who_waits_in_redissons_line_gets_a_turn_after_sixteen_of_ours_and_ours_go_on() {
    let server = CleanServer::start();
    // It may also find the lock free by chance, between two turns of one of our threads: then a heartbeat tells ours.
    let (ours, theirs) = (with_places(&server.url(), Duration::from_secs(3)), redisson(&server));
    // With one thread each release finds our line empty, with four each hands the lock on.
    for (name, threads) in [("alone", 1_u64), ("crowd", 4)] {
        beside(&vec![&ours; threads as usize], name, |counts| {
            let turns = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
            for turn in 0..10 {
                let asking = request(&theirs, name);
                let before = turns();
                let guard = granted(asking, SOON);
                let passed = turns() - before;
                // Each thread may have had a turn before that it counts only now.
                assert!(passed <= TURNS + threads, "{name}, turn {turn}: {passed} of our turns");
                // Our waiter sees that it is held, and has to find out when it is free.
                until_in_line(&server, name, counts.len());
                let had = turns();
                guard.unlock().unwrap();
                eventually(SOON, "ours go on", || turns() > had + 2 * threads);
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{name}: {counts:?}");
        });
    }
}

/// Those of Redisson's line have no heartbeat within that time. Ours need one where they asked before there was such a line.
#[test]
fn both_lines_at_full_speed_have_their_turns() {
    let server = CleanServer::start();
    let (ours, theirs) = (with_places(&server.url(), Duration::from_secs(3)), redisson(&server));
    beside(&[[&ours; 4], [&theirs; 4]].concat(), "both", |counts| {
        let all = || counts.iter().all(|count| count.load(Ordering::Relaxed) >= 20);
        eventually(2 * SOON, "each has had twenty turns", all);
    });
}

/// One who died in Redisson's line keeps its place there for five minutes.
#[test]
fn a_dead_one_in_redissons_line_costs_ours_nothing() {
    let server = CleanServer::start().allow(&["redisson_lock_queue:*", "redisson_lock_timeout:*"]);
    let ours = client(&server.url());
    // One whose channel has no listener, and one whose time is over though its channel has one.
    let mut con = server.con();
    let mut listener = con.as_pubsub();
    listener.subscribe("redisson_lock__channel:{over}:ghost:1").unwrap();
    for (name, millis) in [("silent", 300_000), ("over", -1000)] {
        ghost(&server, name, millis);
        (0..5 * TURNS).for_each(|_| a_turn(&ours, name));
        let state = state(&server, name);
        assert!(!state[0].starts_with('!'), "{name}: the lock was never left to it: {state:?}");
    }
}

/// It listens, but does not come: ours wait for a second, once in sixteen turns, and are not overtaken meanwhile.
#[test]
fn one_who_does_not_come_is_waited_for_a_second() {
    let server = CleanServer::start().allow(&["redisson_lock_queue:*", "redisson_lock_timeout:*"]);
    let ours = client(&server.url());
    let mut con = server.con();
    let mut listener = con.as_pubsub();
    listener.subscribe("redisson_lock__channel:{lazy}:ghost:1").unwrap();
    (1..TURNS).for_each(|_| a_turn(&ours, "lazy"));
    let guard = take(&ours, "lazy");
    let waiting = request(&ours, "lazy");
    ghost(&server, "lazy", 300_000);
    let since = Instant::now();
    guard.unlock().unwrap();
    let told: String = listener.get_message().unwrap().get_payload().unwrap();
    assert_eq!(told, "0", "Redisson's word for a lock that is free");
    let tried = ours.fair_lock("lazy").unwrap().try_lock().unwrap();
    assert!(tried.guard().is_none(), "none of our waiters comes in between");
    let guard = granted(waiting, SOON); // a heartbeat would come later
    assert!(since.elapsed() >= Duration::from_millis(900), "{:?}", since.elapsed());
    guard.unlock().unwrap();
}

/// Each look without the right to a key is an entry in the server's log, or one more of its count.
#[test]
fn neither_a_lock_that_nobody_else_wants_nor_many_requests_fill_the_servers_log_of_refusals() {
    assert_eq!(refusals_with(0), 1, "one look is needed to find out");
    assert!(refusals_with(50) <= 1);
}

/// How many looks were refused in some rounds of Redisson's turns, after this many requests while the lock was held.
fn refusals_with(requests: usize) -> i64 {
    let server = CleanServer::start();
    let words = "ACL SETUSER bob on >pw +@all &* ~log ~fairlock_*:{log} ~fairlock_life";
    server.query::<()>(&words.split(' ').collect::<Vec<_>>());
    let ours = client(&server.url_as("bob", "pw"));
    let guard = take(&ours, "log");
    drop((0..requests).map(|_| request(&ours, "log")).collect::<Vec<_>>());
    guard.unlock().unwrap();
    (0..20 * TURNS).for_each(|_| a_turn(&ours, "log"));
    let refusals: Vec<Vec<redis::Value>> = server.query(&["ACL", "LOG"]);
    let count = |entry: &Vec<redis::Value>| match entry[..] {
        [_, redis::Value::Int(count), ..] => count,
        _ => panic!("{entry:?}"),
    };
    refusals.iter().map(count).sum()
}
