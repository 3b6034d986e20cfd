//! Keys and rights that an administrator changes under a lock, and clients with different times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::errors::assert_denied;
use fairlock_tests::server_state::{listeners, queue, scripts_run};
use fairlock_tests::{CleanServer, Worker, eventually};

use crate::looks::info;
use crate::scene::{ends_on_time, held_and_wanted, recovers, try_once};
use crate::support::*;

/// D17. A lock that vanishes is granted after a heartbeat, and lost after a renewal. No client is notified. The waiter finds out
/// by its heartbeat and the holder by its renewal; until then there are two holders.
#[test]
fn a_vanished_lock_is_granted_and_then_lost() {
    let server = CleanServer::start().allow(&["fairlock_queue:*", "fairlock_record:*"]);
    // Some take the queue as well, which rests when it comes back.
    for (command, rest) in [
        ("DEL orders", Duration::ZERO),
        ("UNLINK orders", Duration::ZERO),
        ("PEXPIRE orders 1", Duration::ZERO),
        ("RENAME orders elsewhere", Duration::ZERO),
        ("MOVE orders 3", Duration::ZERO),
        ("SWAPDB 0 1", PLACE),
        ("FLUSHDB", PLACE),
        ("FLUSHALL", PLACE),
    ] {
        println!("{command}");
        let (_holder, _waiter, guard, waiting) = held_and_wanted(&server, "orders");
        server.query::<()>(&command.split(' ').collect::<Vec<_>>());
        recovers(guard, waiting, Instant::now(), rest);
    }
    // Renamed or moved locks keep their lease, and the keys in the other database their TTL.
    let exists = |db, name| redis::cmd("EXISTS").arg(name).query::<bool>(&mut server.con_to_db(db)).unwrap();
    eventually("the leases of the locks elsewhere have ended", || {
        !exists(0, "elsewhere") && !(0..4).any(|db| exists(db, "orders"))
    });
}

/// D18. An endless lock gets an end from its holder, and waiters keep asking. The next renewal gives an endless lock an end
/// again. If its holder is dead, an administrator must act, and the state is visible.
#[test]
fn an_endless_lock_gets_an_end_from_its_holder() {
    let server = CleanServer::start();
    let waiter = client(&server);
    let mut holder = Worker::start(PROGRAM, &["hold", "hand_off", &server.url(), "endless", "3000"]);
    holder.go();
    holder.expect("held", SOON);
    let [first, second] = [(); 2].map(|()| request(&waiter, "endless"));
    let pttl = || server.query::<i64>(&["PTTL", "endless"]);
    server.query::<()>(&["PERSIST", "endless"]);
    eventually("a renewal has given it an end", || pttl() > 0);

    holder.kill();
    server.query::<()>(&["PERSIST", "endless"]);
    thread::sleep(LEASE + SLACK); // nothing may happen for longer than a lease
    let lock = waiter.fair_lock("endless").unwrap();
    let state = lock.inspect().unwrap();
    assert_eq!((state.holder().unwrap().lease_left, state.queue.len()), (None, 2));
    let before = scripts_run(&server);
    eventually("the waiters look", || scripts_run(&server) > before);
    server.query::<()>(&["DEL", "endless"]);
    let gone = Instant::now();
    let first = granted(first, SOON);
    assert_within(gone, heartbeat_bound(), "the grant");
    // The other way out.
    server.query::<()>(&["PERSIST", "endless"]);
    assert!(lock.force_unlock().unwrap());
    granted(second, SOON).unlock().unwrap();
    drop(first);
    assert_eq!(waiter.stats().places_lost, 0);
}

/// D15. Withdrawn rights are named, and restored rights are used again.
#[test]
fn withdrawn_rights_are_named_and_restored_ones_used() {
    let server = CleanServer::start();
    let rule = |words: &[&str]| server.query::<()>(&[&["ACL", "SETUSER", "bob"], words].concat());
    let all = ["on", ">canary", "~*", "&*", "+@all"];
    rule(&all);
    let bob = builder(&server.url_as("bob", "canary")).build().unwrap();
    let guard = take(&bob, "rights");
    let waiting = request(&bob, "rights");

    // The server closes the subscription, which is not allowed back. Heartbeats keep everything working, without a
    // storm.
    rule(&["resetchannels"]);
    eventually("the subscription is cut off", || listeners(&server) == 0);
    let connections = || info(&server, "stats", "total_connections_received:");
    let (since, before) = (Instant::now(), connections());
    guard.renew().unwrap();
    guard.unlock().unwrap();
    let released = Instant::now();
    let guard = granted(waiting, SOON);
    assert_within(released, heartbeat_bound(), "the grant");
    thread::sleep(Duration::from_secs(3).saturating_sub(since.elapsed())); // attempts are counted in this time
    let ours = (connections() - before).saturating_sub(2); // without the two INFO queries
    assert!(ours <= 12, "{ours} connections within three seconds");
    rule(&["allchannels"]);
    eventually("the client is subscribed again", || listeners(&server) == 1);

    // The hold ends on time, and every call names the reason.
    rule(&["-evalsha"]);
    assert_denied(try_once(&bob, "other"), &["the user lacks a right", "evalsha"]);
    assert_denied(guard.renew(), &["the user lacks a right", "evalsha"]);
    ends_on_time(&server, &guard);
    rule(&["+evalsha"]);
    take(&bob, "rights").unlock().unwrap(); // a refused command is not remembered

    // Connections of a deleted user are closed, and new ones refused.
    server.query::<()>(&["ACL", "DELUSER", "bob"]);
    assert_denied(try_once(&bob, "other"), &["wrong user or password"]);
    rule(&all);
    // A refused login is remembered for up to a second, so that not every call tries it.
    eventually("the user may log in again", || {
        try_once(&bob, "other").is_ok_and(|tried| tried.guard().is_some())
    });
    take(&bob, "rights").unlock().unwrap();
}

/// G2. Clients with different times take turns, each with its own lease. Times belong to the grant and the place, not to the
/// lock.
#[test]
fn clients_with_different_times_take_turns() {
    let server = CleanServer::start();
    let times = [(1000, 600), (3000, 1500), (60_000, 30_000)].map(|(lease, place)| {
        let backend = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff);
        let backend = backend.response_timeout(Duration::from_millis(500)).connect().unwrap();
        let builder = Client::builder(backend).lease(Duration::from_millis(lease));
        (lease, builder.place_ttl(Duration::from_millis(place)).build().unwrap())
    });
    let (taken, server) = (&AtomicBool::new(false), &server);
    thread::scope(|scope| {
        for (lease, client) in &times {
            scope.spawn(move || {
                let mut last = 0;
                for round in 0..25 {
                    let guard = take(client, "mixed");
                    assert!(!taken.swap(true, Ordering::SeqCst), "two holders at once");
                    assert!(guard.token().get() > last);
                    last = guard.token().get();
                    if round == 10 {
                        thread::sleep(Duration::from_millis(1500)); // the work, longer than the shortest lease
                        let left: u64 = server.query(&["PTTL", "mixed"]);
                        assert!(left <= *lease && (*lease < 60_000 || left > 3000), "{left} of {lease}");
                        assert!(!guard.is_lost());
                    }
                    taken.store(false, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert!(times.iter().all(|(_, client)| client.stats().places_lost + client.stats().lost == 0));
    assert!(queue(server, "mixed").is_empty());
}
