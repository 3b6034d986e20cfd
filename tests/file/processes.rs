//! Processes on one lock: a killed one is out of the way at once, and one that stands still is not.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::admin::Holder;
use fairlock::owner::HandOver;
use fairlock::stats::Stats;
use fairlock::{Client, Error, FileBackend, Lock, TryLock};
use fairlock_tests::history::What;
use fairlock_tests::signals::{cont, stop};
use fairlock_tests::turns::{Habits, Store, Turns};
use fairlock_tests::{Worker, eventually};

use super::{Locks, PROGRAM, SOON};

/// How late a busy machine may be.
const LATE: Duration = Duration::from_millis(1500);

/// Shorter than any lease here, and than a third of this time of a place: a heartbeat.
pub(super) const AT_ONCE: Duration = Duration::from_secs(10);

impl Locks {
    /// A process that holds the lock, or waits for it.
    pub(super) fn process(&self, lock: &str) -> Worker {
        let dir = self.dir();
        let mut worker = Worker::start(PROGRAM, &["hold", "file", dir.to_str().unwrap(), lock, "30000"]);
        worker.go();
        worker
    }

    /// A process that holds the lock.
    pub(super) fn holder(&self, lock: &str) -> Worker {
        let worker = self.process(lock);
        worker.expect("held", SOON);
        worker
    }
}

/// Not after its lease of 30 s, nor at the heartbeat of the waiter after 20 s.
#[test]
fn a_killed_holder_is_replaced_at_once() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    let mut holder = locks.holder("x");
    let request = lock.request().unwrap();
    let killed = Instant::now();
    holder.kill();
    request.wait().unwrap().unlock().unwrap();
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
}

/// Nobody waited when it was killed, and nobody sees it as the holder.
#[test]
fn a_lock_of_a_killed_process_is_free() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    locks.holder("x").kill();
    assert!(lock.admin().inspect().unwrap().holder().is_none());
    assert!(matches!(lock.try_lock().unwrap(), TryLock::Granted(_)));
}

/// The hold that a process has, which it was not asked for.
fn held(lock: &Lock) -> HandOver {
    let state = lock.admin().inspect().unwrap();
    let Holder { owner, request, token, .. } = state.holder().expect("it is taken");
    let (request, token) = (request.unwrap().get(), token.unwrap());
    format!("fairlock1.fair.1.{request:016x}.{token}.{owner}.{}", lock.name()).parse().unwrap()
}

/// If the process is killed after the adoption. If it is killed before, its hold is over, and is not adopted.
#[test]
fn an_adopted_hold_outlasts_the_process_that_had_it() {
    let locks = Locks::new();
    let adopter = locks.client();
    let lock = locks.client().fair_lock("x").unwrap();
    let mut holder = locks.holder("x");
    let guard = adopter.adopt(&held(&lock)).unwrap();
    holder.kill();
    assert!(lock.try_lock().unwrap().granted().is_none());
    guard.renew().unwrap();
    guard.unlock().unwrap();
    let mut holder = locks.holder("x");
    let hold = held(&lock);
    holder.kill();
    assert!(matches!(adopter.adopt(&hold), Err(Error::Lost(_))));
    assert!(matches!(lock.try_lock().unwrap(), TryLock::Granted(_)));
}

/// The first waiter and the holder are killed together, and then the next waiter.
#[test]
fn killed_waiters_delay_nobody() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    let mut holder = locks.holder("x");
    let length = || lock.admin().inspect().unwrap().queue_length;
    let mut waiters = [locks.process("x"), locks.process("x")];
    eventually("both wait", || length() == 2);
    let request = lock.request().unwrap();
    waiters[1].kill();
    waiters[0].kill();
    eventually("both are shown as absent", || lock.admin().inspect().unwrap().absent == 2);
    let killed = Instant::now();
    holder.kill();
    request.wait().unwrap().unlock().unwrap();
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
}

/// A waiter for two of two permits is killed, while one permit is free.
#[test]
fn a_killed_waiter_that_does_not_fit_lets_others_in_at_once() {
    let locks = Locks::new();
    let permits = locks.client().semaphore("x", 2).unwrap();
    let _one = permits.acquire().unwrap();
    let dir = locks.dir();
    let mut large = Worker::start(PROGRAM, &["permits", dir.to_str().unwrap(), "x", "2", "2"]);
    large.go();
    eventually("it waits", || permits.admin().inspect().unwrap().queue_length == 1);
    let request = permits.request().unwrap();
    let killed = Instant::now();
    large.kill();
    drop(request.wait().unwrap());
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
}

#[test]
fn a_holder_that_stands_still_keeps_the_lock_for_its_lease() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    let dir = locks.dir();
    let mut holder = Worker::start(PROGRAM, &["hold", "file", dir.to_str().unwrap(), "x", "3000"]);
    holder.go();
    holder.expect("held", SOON);
    stop(holder.child());
    let stopped = Instant::now();
    let guard = lock.lock().unwrap();
    // Its last renewal may be a second old: a third of the lease.
    assert!(stopped.elapsed() > Duration::from_millis(1900), "{:?}", stopped.elapsed());
    cont(holder.child());
    holder.go();
    assert_eq!(holder.ends_well(SOON), Some(false), "it has lost the lock");
    guard.unlock().unwrap();
}

/// 64 processes × 10,000 turns: `FAIRLOCK_FILE_TURNS=10000`, by hand.
#[test]
fn sixty_four_processes_take_exclusive_turns_in_order() {
    let turns = std::env::var("FAIRLOCK_FILE_TURNS").map_or(50, |turns| turns.parse().unwrap());
    let limit = Duration::from_secs(240 + turns as u64 / 2);
    let locks = Locks::for_as_long(limit * 2);
    locks.client();
    let run = Turns::new(PROGRAM, &locks.0, Habits { hold_ms: 0, ..Habits::new("file", turns) });
    for worker in run.start(64) {
        let said = worker.next(limit);
        assert!(said.starts_with(&format!("granted {turns} failed 0 unknown 0 lost 0 ")), "{said}");
    }
    assert_eq!(locks.0.counter(), 64 * turns);
    let events = run.judged(Duration::ZERO, Duration::ZERO);
    assert!(run.in_order(&events) > 32 * turns);
}

/// Of processes, for three times as long as a place lasts without a heartbeat.
#[test]
fn waiting_processes_keep_their_places_while_the_holder_works() {
    const PLACE: Duration = Duration::from_millis(1500);
    let locks = Locks::new();
    let lock = locks.client().fair_lock("turns").unwrap();
    let guard = lock.lock().unwrap();
    let run = Turns::new(PROGRAM, &locks.0, Habits { place: PLACE, hold_ms: 0, ..Habits::new("file", 1) });
    let mut workers = Vec::new();
    for number in 1..4 {
        workers.extend(run.start(1));
        eventually("it waits", || lock.admin().inspect().unwrap().queue_length == number);
    }
    thread::sleep(PLACE * 3);
    let state = lock.admin().inspect().unwrap();
    assert_eq!((state.queue_length, state.absent), (3, 0));
    guard.unlock().unwrap();
    for worker in workers {
        let said = worker.next(SOON);
        // A heartbeat may be due between a grant and its message.
        let is_well =
            said.starts_with("granted 1 failed 0 unknown 0 lost 0 ") && said.ends_with(" places_lost 0");
        assert!(is_well, "{said}");
    }
    let grants = run.judged(Duration::ZERO, Duration::ZERO);
    let of = |is_right: fn(&What) -> bool| -> Vec<u32> {
        grants.iter().filter(|event| is_right(&event.what)).map(|event| event.pid).collect()
    };
    let asked = of(|what| matches!(what, What::Ask { .. }));
    assert_eq!(of(|what| matches!(what, What::Granted { .. })), asked, "in the order in which they asked");
}

/// As if each message were lost: the socket of each client has lost its name.
#[test]
fn wake_ups_without_a_way_cost_a_third_of_a_place() {
    const PLACE: Duration = Duration::from_secs(3);
    let locks = Locks::new();
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let backend = FileBackend::open(locks.dir()).unwrap();
            Client::builder(backend).place_ttl(PLACE).build().unwrap()
        })
        .collect();
    for file in fs::read_dir(locks.dir()).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "wake") {
            fs::remove_file(file).unwrap();
        }
    }
    let mut guard = clients[0].fair_lock("x").unwrap().lock().unwrap();
    let requests: Vec<_> =
        clients[1..].iter().map(|client| client.fair_lock("x").unwrap().request().unwrap()).collect();
    for request in requests {
        let (released, token) = (Instant::now(), guard.token());
        guard.unlock().unwrap();
        guard = request.wait().unwrap();
        assert!(guard.token() > token && released.elapsed() < PLACE / 3 + LATE, "{:?}", released.elapsed());
    }
    let stats: Vec<_> = clients.iter().map(Client::stats).collect();
    let by = |count: fn(&Stats) -> u64| stats.iter().map(count).sum::<u64>();
    assert_eq!([by(|stats| stats.granted_by_wake_up), by(|stats| stats.granted_by_polling)], [0, 3]);
    assert_eq!(by(|stats| stats.places_lost), 0);
}

/// Its thread for wake-ups could not wait once. It has no heartbeat for 30 s.
#[test]
fn a_process_that_could_not_wait_once_hears_the_next_message() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    let (dir, history) = (locks.dir(), locks.0.file("history"));
    let (trace, inject) = ("trace=ppoll", "inject=ppoll:error=ENOMEM:when=1");
    let strace = ["-f", "-qq", "-o", "/dev/null", "-e", trace, "-e", inject, PROGRAM];
    let turn = ["turns", "file", dir.to_str().unwrap(), "x", "1", "0", "90000", "90000", "0"];
    let words = [&strace[..], &turn, &[history.to_str().unwrap()]].concat();
    let mut waiter = Worker::start("strace", &words);
    let guard = lock.lock().unwrap();
    waiter.go();
    eventually("it waits", || lock.admin().inspect().unwrap().queue_length == 1);
    guard.unlock().unwrap();
    let said = waiter.next(SOON);
    assert_eq!(said, "granted 1 failed 0 unknown 0 lost 0 polled 0 places_lost 0");
}
