//! Beside Redisson's fair line: a client of discipline `Redisson` stands where Java would, with the same keys and channels.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

use crate::support::{LONG, SOON, client, granted, join, request, state, take, until_in_line};

/// After so many turns of ours the other line has one.
const TURNS: u64 = 16;

/// Ends the workers however the test ends: those of one that fails would go on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client in Redisson's line, without heartbeats that could interfere.
fn redisson(server: &RedisServer) -> Client {
    let backend = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    Client::builder(backend).place_ttl(LONG).lease(LONG).build().unwrap()
}

/// An entry in Redisson's line without a waiter; its time lasts for so long.
fn ghost(server: &RedisServer, name: &str, millis: i64) {
    let (seconds, _): (i64, i64) = server.query(&["TIME"]);
    let ends = (seconds * 1000 + millis).to_string();
    server.query::<()>(&["RPUSH", &format!("redisson_lock_queue:{{{name}}}"), "ghost:1"]);
    server.query::<()>(&["ZADD", &format!("redisson_lock_timeout:{{{name}}}"), &ends, "ghost:1"]);
}

#[test]
fn who_waits_in_redissons_line_gets_a_turn_after_sixteen_of_ours_and_ours_go_on() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    // It may also find the lock free by chance, between two turns of one thread of ours: then a heartbeat tells ours.
    let ttl = Duration::from_secs(3);
    let (ours, theirs) = (client(&server.url(), ttl), redisson(&server));
    // With one thread of ours each release finds our line empty, with four each hands the lock on.
    for (name, threads) in [("alone", 1_u64), ("crowd", 4)] {
        let done = AtomicBool::new(false);
        let counts: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            let ends = Ends(&done);
            let busy: Vec<_> = counts
                .iter()
                .map(|count| {
                    let (lock, owner, done) = (ours.fair_lock(name).unwrap(), ours.new_owner(), &done);
                    scope.spawn(move || {
                        while !done.load(Ordering::Relaxed) {
                            lock.owned_by(&owner).unwrap().lock().unwrap().unlock().unwrap();
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let turns = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
            let lock = theirs.fair_lock(name).unwrap();
            for turn in 0..10 {
                let asking = lock.owned_by(&theirs.new_owner()).unwrap().request().unwrap();
                let before = turns();
                let guard = granted(asking, SOON);
                let passed = turns() - before;
                // Each thread may have had a turn before that it counts only now.
                assert!(passed <= TURNS + threads, "{name}, turn {turn}: {passed} turns of ours");
                // A waiter of ours sees that it is held, and has to find out when it is free.
                until_in_line(&server, name, counts.len());
                let had = turns();
                guard.unlock().unwrap();
                eventually(SOON, "ours go on", || turns() > had + 2 * threads);
            }
            drop(ends);
            busy.into_iter().for_each(join);
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{name}: {counts:?}");
    }
    drop((ours, theirs));
    assert_no_residue(&server, &[]);
}

/// Those of Redisson's line have no heartbeat within that time. Ours need one where they asked before there was such a line.
#[test]
fn both_lines_at_full_speed_have_their_turns() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (ours, theirs) = (client(&server.url(), Duration::from_secs(3)), redisson(&server));
    let done = AtomicBool::new(false);
    let counts: [AtomicU64; 8] = std::array::from_fn(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        let ends = Ends(&done);
        let workers: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(number, count)| {
                let client = if number < 4 { &ours } else { &theirs };
                let (lock, owner, done) = (client.fair_lock("both").unwrap(), client.new_owner(), &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        lock.owned_by(&owner).unwrap().lock().unwrap().unlock().unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let all = || counts.iter().all(|count| count.load(Ordering::Relaxed) >= 20);
        eventually(2 * SOON, "each has had twenty turns", all);
        drop(ends);
        workers.into_iter().for_each(join);
    });
    println!("turns of ours, and of Redisson's line: {counts:?}");
    drop((ours, theirs));
    assert_no_residue(&server, &[]);
}

/// One who died in Redisson's line keeps its place there for five minutes.
#[test]
fn a_dead_one_in_redissons_line_costs_ours_nothing() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = client(&server.url(), LONG);
    // One whose channel has no listener, and one whose time is over though its channel has one.
    let mut con = server.con();
    let mut listener = con.as_pubsub();
    for (name, millis) in [("silent", 300_000), ("over", -1000)] {
        ghost(&server, name, millis);
        listener.subscribe("redisson_lock__channel:{over}:ghost:1").unwrap();
        let lock = ours.fair_lock(name).unwrap();
        for _ in 0..5 * TURNS {
            take(&lock).unlock().unwrap();
        }
        let state = state(&server, name);
        assert!(!state[0].starts_with('!'), "{name}: the lock was never left to it: {state:?}");
    }
    drop(listener);
    drop(ours);
    assert_no_residue(&server, &["redisson_lock_queue:*", "redisson_lock_timeout:*"]);
}

/// It listens, but does not come: ours wait for a second, once in sixteen turns, and are not overtaken meanwhile.
#[test]
fn one_who_does_not_come_is_waited_for_a_second() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = client(&server.url(), LONG);
    let mut con = server.con();
    let mut listener = con.as_pubsub();
    listener.subscribe("redisson_lock__channel:{lazy}:ghost:1").unwrap();
    let lock = ours.fair_lock("lazy").unwrap();
    for _ in 1..TURNS {
        take(&lock).unlock().unwrap();
    }
    let guard = take(&lock);
    let waiting = request(&ours, "lazy");
    ghost(&server, "lazy", 300_000);
    let since = Instant::now();
    guard.unlock().unwrap();
    let told: String = listener.get_message().unwrap().get_payload().unwrap();
    assert_eq!(told, "0", "Redisson's word for a lock that is free");
    assert!(lock.try_lock().unwrap().guard().is_none(), "no waiter of ours comes in between");
    let guard = granted(waiting, SOON); // a heartbeat would come later
    assert!(since.elapsed() >= Duration::from_millis(900), "{:?}", since.elapsed());
    guard.unlock().unwrap();
    drop(listener);
    drop(ours);
    assert_no_residue(&server, &["redisson_lock_queue:*", "redisson_lock_timeout:*"]);
}

/// Each look without the right to a key is an entry in the server's log, or one more of its count.
#[test]
fn requests_that_queue_do_not_fill_the_servers_log_of_refusals() {
    let ask = |client: &Client| drop((0..50).map(|_| request(client, "log")).collect::<Vec<_>>());
    assert!(refusals_with(ask) <= 1);
}

#[test]
fn a_lock_that_nobody_else_wants_does_not_fill_the_servers_log_of_refusals() {
    assert_eq!(refusals_with(|_| ()), 1, "one look is needed to find out");
}

/// How many looks were refused in some rounds of Redisson's turns, after this while the lock was held.
fn refusals_with(ask: impl Fn(&Client)) -> i64 {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let mut words = vec!["ACL", "SETUSER", "bob", "on", ">pw", "+@all", "&*"];
    words.extend(["~log", "~fairlock_*:{log}", "~fairlock_life"]);
    server.query::<()>(&words);
    let ours = client(&server.url_as("bob", "pw"), LONG);
    let lock = ours.fair_lock("log").unwrap();
    let guard = take(&lock);
    ask(&ours);
    guard.unlock().unwrap();
    for _ in 0..20 * TURNS {
        take(&lock).unlock().unwrap();
    }
    let refusals: Vec<Vec<redis::Value>> = server.query(&["ACL", "LOG"]);
    let count = |entry: &Vec<redis::Value>| match entry[..] {
        [_, redis::Value::Int(count), ..] => count,
        _ => panic!("{entry:?}"),
    };
    drop((lock, ours));
    assert_no_residue(&server, &[]);
    refusals.iter().map(count).sum()
}
