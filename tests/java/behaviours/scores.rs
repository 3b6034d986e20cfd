//! The times in Redisson's sorted set never drift far into the future, which would keep dead waiters alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::backend::{Acquire, Acquired, Backend, Hold, LockId, Place, RequestId, Wait, Withdrawn};
use fairlock::{Client, Discipline, LockKind, LockName, OwnerId, RedisBackend};
use fairlock_tests::{RedisServer, assert_no_residue, eventually};

use crate::world::SOON;

const LEASE: Duration = Duration::from_secs(30);
/// Redisson's `fairLockWaitTimeout`.
const THREAD_WAIT: Duration = Duration::from_secs(300);

/// A server, a lock, and owners without heartbeats: each request is made by hand.
struct Bench {
    server: RedisServer,
    backend: RedisBackend,
    lock: LockId,
    wait: Wait,
}

impl Bench {
    fn new(thread_wait: Duration, wait: Wait) -> Bench {
        let server = RedisServer::start();
        let backend = connect(&server, thread_wait);
        let lock = LockId::new(LockName::new("drift").unwrap(), LockKind::Fair);
        Bench { server, backend, lock, wait }
    }

    fn client(&self, thread_wait: Duration) -> Client {
        let builder = Client::builder(connect(&self.server, thread_wait));
        builder.lease(LEASE).place_ttl(Duration::from_millis(600)).build().unwrap()
    }

    fn place<'a>(&'a self, owner: &'a OwnerId) -> Place<'a> {
        let mut place = Place::new(&self.lock, owner, RequestId::new(1));
        place.wait = self.wait;
        place
    }

    fn ask(&self, owner: &OwnerId) -> Acquired {
        self.ask_for(owner, LEASE)
    }

    fn ask_for(&self, owner: &OwnerId, lease: Duration) -> Acquired {
        self.backend.acquire(&Acquire::new(self.place(owner), lease)).unwrap()
    }

    fn release(&self, owner: &OwnerId, granted: Acquired) {
        let Acquired::Granted { token, .. } = granted else { panic!("{granted:?}") };
        self.backend.release(&Hold::new(&self.lock, owner, RequestId::new(1), token)).unwrap();
    }

    fn withdraw(&self, owner: &OwnerId) {
        assert_eq!(self.backend.withdraw(&self.place(owner)).unwrap(), Withdrawn::Left);
    }

    /// The time of each owner, the earliest first.
    fn scores(&self) -> Vec<(String, i64)> {
        self.server.query(&["ZRANGE", "redisson_lock_timeout:{drift}", "0", "-1", "WITHSCORES"])
    }

    fn score(&self, owner: &OwnerId) -> i64 {
        let scores = self.scores();
        scores.iter().find(|(name, _)| name == owner.as_str()).expect("it is in line").1
    }

    /// No time is further ahead than the lease and one wait for each waiter up to it.
    fn assert_no_drift(&self) {
        let (scores, now) = (self.scores(), self.server.time_ms());
        for ((owner, score), position) in scores.iter().zip(1..) {
            let most = millis(LEASE) + millis(THREAD_WAIT) * position;
            assert!(score - now <= most, "{owner} at {position}: {} > {most}", score - now);
        }
    }
}

fn connect(server: &RedisServer, thread_wait: Duration) -> RedisBackend {
    let builder = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson);
    builder.thread_wait(thread_wait).connect().unwrap()
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}

/// An owner of a dead client.
fn dead(number: u32) -> OwnerId {
    OwnerId::new(&format!("00000000-0000-4000-8000-000000000000:{number}"))
}

/// Redisson: `testWaitTimeoutDrift`.
#[test]
fn short_waits_around_a_dead_waiter_do_not_push_the_times_ahead() {
    let _alone = fairlock_tests::Alone::here();
    let bench = Bench::new(THREAD_WAIT, Wait::Forever);
    let clients = [(); 3].map(|()| bench.client(THREAD_WAIT));
    let held = bench.client(THREAD_WAIT).fair_lock("drift").unwrap();
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        for client in &clients {
            let lock = client.fair_lock("drift").unwrap();
            let bench = &bench;
            scope.spawn(move || {
                for turn in 0..17 {
                    let wait = Duration::from_millis(10 + turn % 5 * 5);
                    assert!(lock.try_lock_for(wait).unwrap().guard().is_none());
                    bench.assert_no_drift();
                }
            });
        }
        assert!(matches!(bench.ask(&dead(1)), Acquired::Queued { .. }));
    });
    eventually(SOON, "only the dead waiter is left", || bench.scores().len() == 1);
    bench.assert_no_drift();
    bench.withdraw(&dead(1));
    guard.unlock().unwrap();
    assert_no_residue(&bench.server, &[]);
}

/// Redisson: `testLockAcquiredTimeoutDrift`.
#[test]
fn repeated_acquisitions_do_not_push_the_times_ahead() {
    let _alone = fairlock_tests::Alone::here();
    let bench = Bench::new(THREAD_WAIT, Wait::Forever);
    let clients = [(); 3].map(|()| bench.client(THREAD_WAIT));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let takers = clients.each_ref().map(|client| {
            let lock = client.fair_lock("drift").unwrap();
            scope.spawn(move || {
                for turn in 0..60 {
                    let guard = match turn % 2 {
                        0 => lock.try_lock_for(SOON).unwrap().guard().expect("in time"),
                        _ => lock.lock().unwrap(),
                    };
                    guard.unlock().unwrap();
                }
            })
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bench.assert_no_drift();
            }
        });
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(bench.scores().is_empty());
    assert_no_residue(&bench.server, &[]);
}

/// Redisson: `testAcquireFailedTimeoutDrift_Descrete`.
#[test]
fn a_waiter_that_gives_up_takes_its_wait_off_the_times_behind_it() {
    let _alone = fairlock_tests::Alone::here();
    let wait = Duration::from_secs(5);
    let bench = Bench::new(THREAD_WAIT, Wait::UpTo(wait));
    let holder = dead(0);
    let [first, second, third, fourth] = [1, 2, 3, 4].map(dead);
    let held = bench.ask(&holder);
    let asked = bench.server.time_ms();
    for owner in [&first, &second, &third, &fourth] {
        assert!(matches!(bench.ask(owner), Acquired::Queued { .. }));
    }
    let before: Vec<i64> = [&first, &second, &third, &fourth].map(|owner| bench.score(owner)).into();
    for (score, position) in before.iter().zip(1..) {
        let off = score - asked - millis(LEASE) - millis(wait) * position;
        assert!(off.abs() < 100, "{position} is {off} ms off");
    }
    bench.withdraw(&second);
    bench.withdraw(&second); // a repeat subtracts nothing more
    assert_eq!(bench.score(&first), before[0]);
    assert_eq!(bench.score(&third), before[2] - millis(wait));
    assert_eq!(bench.score(&fourth), before[3] - millis(wait));

    bench.release(&holder, held);
    assert!(matches!(bench.ask(&fourth), Acquired::Queued { rank: 2, .. }));
    assert!(matches!(bench.ask(&third), Acquired::Queued { rank: 1, .. }));
    let granted = bench.ask(&first);
    assert_eq!(bench.score(&third), before[2] - millis(wait) * 2);
    assert_eq!(bench.score(&fourth), before[3] - millis(wait) * 2);
    bench.release(&first, granted);
    for owner in [&third, &fourth] {
        bench.release(owner, bench.ask(owner));
    }
    assert_no_residue(&bench.server, &[]);
}

/// Redisson: `testLockAcquiredTimeoutDrift_Descrete`.
#[test]
fn a_hand_over_moves_all_waiters_up_by_one_wait() {
    let _alone = fairlock_tests::Alone::here();
    let wait = Duration::from_secs(5);
    let bench = Bench::new(THREAD_WAIT, Wait::UpTo(wait));
    let holder = dead(0);
    let [first, second, third, fourth] = [1, 2, 3, 4].map(dead);
    let held = bench.ask(&holder);
    for owner in [&first, &second, &third] {
        assert!(matches!(bench.ask(owner), Acquired::Queued { .. }));
    }
    let before = [&second, &third].map(|owner| bench.score(owner));
    bench.release(&holder, held);
    let granted = bench.ask(&first);
    let after = [&second, &third].map(|owner| bench.score(owner));
    assert_eq!(after, before.map(|score| score - millis(wait)));
    assert!(matches!(bench.ask(&fourth), Acquired::Queued { rank: 2, .. }));
    assert_eq!(bench.score(&fourth), after[1] + millis(wait));
    // Asking again moves nothing.
    for owner in [&second, &third, &fourth] {
        bench.ask(owner);
    }
    assert_eq!([&second, &third].map(|owner| bench.score(owner)), after);
    bench.release(&first, granted);
    for owner in [&second, &third, &fourth] {
        bench.release(owner, bench.ask(owner));
    }
    assert_no_residue(&bench.server, &[]);
}

/// Redisson: `testAbandonedTimeoutDrift_Descrete`.
#[test]
fn abandoned_places_are_passed_over_when_their_times_end() {
    let _alone = fairlock_tests::Alone::here();
    let bench = Bench::new(Duration::from_millis(200), Wait::Forever);
    let [holder, first, second, third] = [0, 1, 2, 3].map(dead);
    let lease = Duration::from_millis(200);
    assert!(matches!(bench.ask_for(&holder, lease), Acquired::Granted { .. }));
    for owner in [&first, &second, &third] {
        assert!(matches!(bench.ask(owner), Acquired::Queued { .. }));
    }
    let (passed_over, asked) = (bench.score(&second), Instant::now());
    let mut granted = None;
    eventually(SOON, "the third gets the lock", || {
        let (before, answer) = (bench.server.time_ms(), bench.ask(&third));
        match answer {
            Acquired::Granted { .. } => granted = Some(answer),
            _ => assert!(
                before <= passed_over,
                "both times ahead have ended, and the third does not get the lock"
            ),
        }
        granted.is_some()
    });
    assert!(bench.server.time_ms() >= passed_over && asked.elapsed() < Duration::from_secs(2));
    bench.release(&third, granted.unwrap());
    assert_no_residue(&bench.server, &[]);
}

/// Redisson: `testFirstThreadDeathTimeoutDrift`.
#[test]
fn a_first_waiter_that_dies_delays_the_others_by_its_own_time_only() {
    let _alone = fairlock_tests::Alone::here();
    let wait = Duration::from_millis(1000);
    let bench = Bench::new(wait, Wait::Forever);
    let holder = dead(0);
    let lease = Duration::from_millis(500);
    assert!(matches!(bench.ask_for(&holder, lease), Acquired::Granted { .. }));
    assert!(matches!(bench.ask(&dead(1)), Acquired::Queued { rank: 0, .. }));
    let started = Instant::now();
    let clients = [(); 3].map(|()| bench.client(wait));
    let requests = clients.each_ref().map(|client| client.fair_lock("drift").unwrap().request().unwrap());
    for ((_, score), position) in bench.scores().iter().zip(1..) {
        let ahead = score - bench.server.time_ms();
        assert!(ahead <= millis(lease) + millis(wait) * position, "{position}: {ahead}");
    }
    for request in requests {
        request.wait().unwrap().unlock().unwrap();
    }
    // The lease, the dead waiter's time, and the next heartbeat behind it.
    let took = started.elapsed();
    assert!(took < lease + wait + Duration::from_millis(600), "{took:?}");
    assert_no_residue(&bench.server, &[]);
}
