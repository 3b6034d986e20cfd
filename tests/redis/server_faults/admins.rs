//! Keys and rights that an administrator changes under a lock, and clients with different times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, Error, RedisBackend};
use fairlock_tests::server_state::{line, listeners, scripts_run};
use fairlock_tests::{Alone, RedisServer, Worker, assert_no_residue, eventually};

use crate::looks::info;
use crate::support::{
    LEASE, PLACE, PROGRAM, SLACK, SOON, assert_loses, assert_within, builder, client, granted,
    heartbeat_bound, request, take,
};

/// D17. No client is notified. The waiter finds out by its heartbeat and the holder by its renewal; until then there
/// are two holders.
#[test]
fn a_lock_that_vanishes_is_granted_after_a_heartbeat_and_lost_after_a_renewal() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server), client(&server));
    // Some take the line as well, which rests when it comes back.
    for (words, rest) in [
        (&["DEL", "orders"][..], Duration::ZERO),
        (&["UNLINK", "orders"], Duration::ZERO),
        (&["PEXPIRE", "orders", "1"], Duration::ZERO),
        (&["RENAME", "orders", "elsewhere"], Duration::ZERO),
        (&["MOVE", "orders", "3"], Duration::ZERO),
        (&["SWAPDB", "0", "1"], PLACE),
        (&["FLUSHDB"], PLACE),
        (&["FLUSHALL"], PLACE),
    ] {
        let guard = take(&holder, "orders");
        let waiting = request(&waiter, "orders");
        server.query::<()>(words);
        let gone = Instant::now();
        let later = granted(waiting, SOON);
        assert_within(gone, heartbeat_bound() + rest, &words.join(" "));
        assert!(later.token() > guard.token(), "{words:?}");
        assert_loses(guard, gone);
        assert!(!later.is_lost(), "{words:?}");
        later.unlock().unwrap();
    }
    // Renamed or moved locks keep their lease, and the keys in the other database their TTL.
    drop((holder, waiter));
    let aside = || server.query::<i64>(&["EXISTS", "elsewhere"]);
    eventually(LEASE + SOON, "the lease of the renamed lock has ended", || aside() == 0);
    eventually(SOON, "the leases in the other databases have ended", || {
        (0..4).all(|db| {
            redis::cmd("EXISTS").arg("orders").query::<i64>(&mut server.con_to_db(db)).unwrap() == 0
        })
    });
    assert_no_residue(&server, &["fairlock_line:*", "fairlock_record:*"]);
}

/// D10.
#[test]
fn an_evicted_lock_is_granted_again_with_a_greater_token_and_its_holder_is_told() {
    let _alone = Alone::here();
    let server = RedisServer::builder().arg("maxmemory-policy", "volatile-lru").start();
    let (holder, waiter) = (client(&server), client(&server));
    let guard = take(&holder, "evicted");
    let waiting = request(&waiter, "evicted");
    let room = info(&server, "memory", "used_memory:") + 1_000_000;
    server.query::<()>(&["CONFIG", "SET", "maxmemory", &room.to_string()]);
    let much = "x".repeat(10_000);
    let mut number = 0;
    eventually(SOON, "the lock is evicted", || {
        for _ in 0..10 {
            number += 1;
            // Refused as soon as nothing is left to evict.
            let _ = server.try_query::<()>(&["SET", &format!("filler{number}"), &much]);
        }
        server.query::<i64>(&["EXISTS", "evicted"]) == 0
    });
    let gone = Instant::now();
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    let later = granted(waiting, SOON);
    assert_within(gone, heartbeat_bound(), "the grant");
    assert!(later.token() > guard.token());
    assert_loses(guard, gone);
    later.unlock().unwrap();
    assert_no_residue(&server, &["filler*"]);
}

/// D18. The next renewal gives an endless lock an end again. If its holder is dead, an administrator must act, and
/// the state is visible.
#[test]
fn an_endless_lock_gets_an_end_from_its_holder_and_waiters_keep_asking() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let waiter = client(&server);
    let mut holder = Worker::start(PROGRAM, &["hold", "hand_off", &server.url(), "endless", "3000"]);
    holder.go();
    holder.expect("held", SOON);
    let first = request(&waiter, "endless");
    let second = request(&waiter, "endless");
    let pttl = || server.query::<i64>(&["PTTL", "endless"]);
    server.query::<()>(&["PERSIST", "endless"]);
    eventually(LEASE / 3 + SLACK, "a renewal has given it an end", || pttl() > 0);

    holder.kill();
    server.query::<()>(&["PERSIST", "endless"]);
    thread::sleep(LEASE + SLACK); // nothing may happen for longer than a lease
    let state = waiter.fair_lock("endless").unwrap().inspect().unwrap();
    assert_eq!((state.holder().unwrap().lease_left, state.line.len()), (None, 2));
    let before = scripts_run(&server);
    eventually(heartbeat_bound(), "the waiters look", || scripts_run(&server) > before);
    server.query::<()>(&["DEL", "endless"]);
    let gone = Instant::now();
    let first = granted(first, SOON);
    assert_within(gone, heartbeat_bound(), "the grant");
    // The other way out.
    server.query::<()>(&["PERSIST", "endless"]);
    assert!(waiter.fair_lock("endless").unwrap().force_unlock().unwrap());
    granted(second, SOON).unlock().unwrap();
    drop(first);
    assert_eq!(waiter.stats().places_lost, 0);
    assert_no_residue(&server, &[]);
}

/// D15.
#[test]
fn withdrawn_rights_are_named_and_restored_rights_are_used_again() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let rule = |words: &[&str]| server.query::<()>(&[&["ACL", "SETUSER", "bob"], words].concat());
    rule(&["on", ">pw", "~*", "&*", "+@all"]);
    let bob = builder(&server.url_as("bob", "pw")).build().unwrap();
    let guard = take(&bob, "rights");
    let waiting = request(&bob, "rights");

    // The server closes the subscription, which is not allowed back. Heartbeats keep everything working, without a
    // storm.
    rule(&["resetchannels"]);
    eventually(SOON, "the subscription is cut off", || listeners(&server) == 0);
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
    eventually(SOON, "the client is subscribed again", || listeners(&server) == 1);

    // The hold ends on time, and every call names the reason.
    rule(&["-evalsha"]);
    let denied = Instant::now();
    let other = bob.fair_lock("other").unwrap();
    for error in
        [other.owned_by(&bob.new_owner()).unwrap().try_lock().unwrap_err(), guard.renew().unwrap_err()]
    {
        assert!(matches!(error, Error::Denied { .. }), "{error:?}");
        assert!(
            error.to_string().contains("the user lacks a right") && error.to_string().contains("evalsha"),
            "{error}"
        );
    }
    eventually(LEASE + SLACK, "the hold is lost", || {
        let over = server.query::<i64>(&["PTTL", "rights"]) < 0;
        assert!(!over || guard.valid_for().is_zero(), "the server's lease ended before ours");
        guard.is_lost()
    });
    assert_within(denied, LEASE + SLACK, "the verdict");
    rule(&["+evalsha"]);
    take(&bob, "rights").unlock().unwrap(); // a refused command is not remembered

    // Connections of a deleted user are closed, and new ones refused.
    server.query::<()>(&["ACL", "DELUSER", "bob"]);
    let error = other.owned_by(&bob.new_owner()).unwrap().try_lock().unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains("wrong user or password"), "{error}");
    rule(&["on", ">pw", "~*", "&*", "+@all"]);
    // A refused login is remembered for up to a second, so that not every call tries it.
    eventually(SOON, "the user may log in again", || {
        other.owned_by(&bob.new_owner()).unwrap().try_lock().is_ok_and(|tried| tried.guard().is_some())
    });
    take(&bob, "rights").unlock().unwrap();
    drop(guard);
    drop(bob);
    assert_no_residue(&server, &[]);
}

/// G2. Times belong to the grant and the place, not to the lock.
#[test]
fn clients_with_different_times_take_turns_each_with_its_own_lease() {
    let _alone = Alone::here();
    let server = RedisServer::start();
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
    assert!(line(server, "mixed").is_empty());
    drop(times);
    assert_no_residue(server, &[]);
}
