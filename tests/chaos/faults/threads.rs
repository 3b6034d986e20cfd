//! Group B: misplaced guards, misbehaving callbacks, two servers in one process, and very many
//! holds.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, OwnedGuard, RedisBackend, TryLock};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually, our_threads};

use crate::support::{ANSWER, LEASE, SLACK, SOON, client, granted, lock, ms, request, until_free, worker};

/// B6: callbacks run on their own thread.
#[test]
fn callbacks_that_panic_or_never_return_delay_no_renewal() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let client = client(&server.url());
    let (let_go, stuck) = channel::<()>();
    let stuck = std::sync::Mutex::new(stuck);
    client.on_lost(|_| panic!("on purpose"));
    client.on_lost(move |_| drop(stuck.lock().map(|stuck| stuck.recv())));
    let kept = granted(request(&client, "kept"), SOON);
    let taken = granted(request(&client, "taken"), SOON);
    assert!(client.fair_lock("taken").unwrap().force_unlock().unwrap());
    taken.lost().recv_timeout(SOON).unwrap();
    let later = granted(request(&client, "later"), SOON);
    thread::sleep(LEASE * 2); // renewals come in this time
    assert!(!kept.is_lost() && !later.is_lost());
    assert!(client.fair_lock("later").unwrap().force_unlock().unwrap());
    later.lost().recv_timeout(SOON).unwrap();
    let_go.send(()).unwrap();
    let_go.send(()).unwrap();
    kept.unlock().unwrap();
    assert!(matches!(later.unlock(), Err(Error::Lost(_))));
    drop(taken);
    drop(client);
    assert_no_residue(&server, &[]);
}

/// B8: one client per server, each with its own watchdog.
#[test]
fn a_server_that_stands_still_delays_no_renewal_at_another_one() {
    let _alone = Alone::here();
    let (still, well) = (RedisServer::start(), RedisServer::start());
    let (at_still, at_well) = (client(&still.url()), client(&well.url()));
    let lost = granted(request(&at_still, "still"), SOON);
    let kept = granted(request(&at_well, "well"), SOON);
    still.stop();
    let stopped = Instant::now();
    eventually("the hold on the stopped server is lost", || lost.is_lost());
    assert!(stopped.elapsed() < LEASE, "{:?}", stopped.elapsed());
    while stopped.elapsed() < LEASE * 3 {
        assert!(kept.valid_for() > LEASE / 3, "{:?}", kept.valid_for());
        let asked = Instant::now();
        granted(request(&at_well, "other"), SOON).unlock().unwrap();
        assert!(asked.elapsed() < ANSWER + SLACK, "{:?}", asked.elapsed());
        thread::sleep(ms(20)); // the passing time is tested
    }
    still.cont();
    kept.unlock().unwrap();
    drop(lost);
    until_free(&still, "still");
    drop((at_still, at_well));
    assert_no_residue(&still, &[]);
    assert_no_residue(&well, &[]);
}

/// B10. A guard that is dropped when its thread ends gives the lock back. The guards are in thread-locals that outlive their
/// client, of a thread that ends and of the main thread.
#[test]
fn a_guard_dropped_with_its_thread_gives_the_lock_back() {
    let _alone = Alone::here();
    for how in ["thread", "main"] {
        let server = RedisServer::start();
        let mut holder = worker(&["end", &server.url(), "local", "30000", how]);
        holder.go();
        holder.expect("held", SOON);
        holder.go();
        assert_eq!(holder.ends_well(SOON), Some(true), "{how}");
        assert!(!server.query::<bool>(&["EXISTS", "local"]), "{how}");
        assert_no_residue(&server, &[]);
    }
}

/// B11: one watchdog with its two threads, one subscription and two connections renew them all.
#[test]
fn ten_thousand_holds_of_one_process_are_renewed_together() {
    const HOLDS: usize = 10_000;
    let lease = SOON;
    let _alone = Alone::here();
    let server = RedisServer::start();
    // A busy machine takes seconds for a round.
    let backend = RedisBackend::builder(&server.url()).response_timeout(lease / 2).connections(2);
    let client = Client::builder(backend.connect().unwrap()).lease(lease).build().unwrap();
    let guards: Vec<OwnedGuard> =
        (0..HOLDS).map(|number| granted(request(&client, &format!("hold-{number}")), SOON)).collect();
    let expected = ["fairlock-dog", "fairlock-expiry", "fairlock-listen"];
    eventually("three threads", || our_threads() == expected);
    assert!(server.clients().len() <= 3, "{:?}", server.clients());
    let held = Instant::now();
    while held.elapsed() < lease * 6 / 5 {
        let least = guards.iter().map(OwnedGuard::valid_for).min().unwrap();
        assert!(least > lease / 6, "{least:?} after {:?}", held.elapsed());
        thread::sleep(ms(100)); // the passing time is tested
    }
    assert_eq!(client.stats().lost, 0);
    drop(guards);
    drop(client);
    assert_no_residue(&server, &[]);
}

/// B12: the longest and the shortest times.
#[test]
fn leases_and_waits_of_any_length_work_or_are_refused_by_name() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let lock = lock(&server.url(), "long");
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let guard = lock.fixed_lease(century).try_lock_for(Duration::MAX).unwrap().guard().unwrap();
    assert!(guard.valid_for() > century / 2, "{:?}", guard.valid_for());
    assert!(server.query::<i64>(&["PTTL", "long"]) > 0);
    guard.unlock().unwrap();
    for bad in [Duration::MAX, Duration::ZERO, ms(1)] {
        for error in [lock.fixed_lease(bad).lock(), lock.max_hold(bad).lock()].map(Result::unwrap_err) {
            assert!(matches!(error, Error::InvalidConfig { .. }), "{bad:?}: {error}");
        }
    }
    // Ten milliseconds are allowed; a slower machine learns that the hold is lost.
    let short = lock.fixed_lease(ms(10));
    for _ in 0..50 {
        if let TryLock::Granted(guard) = short.try_lock_for(SLACK).unwrap() {
            assert!(guard.valid_for() < ms(10));
            assert!(matches!(guard.unlock(), Ok(()) | Err(Error::Lost(_))));
        }
    }
    until_free(&server, "long");
    assert_no_residue(&server, &[]);
}
