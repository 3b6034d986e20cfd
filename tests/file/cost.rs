//! What a lock on files costs beside `flock` itself: `cargo test -p fairlock-tests --test file cost -- --nocapture` prints it.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use super::Locks;

const CYCLES: u32 = 2000;
const HAND_OVERS: usize = 100;

/// The bound is loose, since other tests run beside this one. A step has five calls of the system: a cycle ten, where `flock` has two.
#[test]
fn a_cycle_costs_a_few_times_what_flock_costs() {
    let locks = Locks::new();
    let lock = locks.client().fair_lock("x").unwrap();
    let plain = File::create(locks.0.file("plain")).unwrap();
    let flock = || {
        plain.lock().unwrap();
        plain.unlock().unwrap();
    };
    let [ours, theirs] =
        [&|| lock.lock().unwrap().unlock().unwrap() as (), &flock as &dyn Fn()].map(|cycle| {
            cycle();
            let started = Instant::now();
            (0..CYCLES).for_each(|_| cycle());
            started.elapsed() / CYCLES
        });
    println!("a cycle: {ours:?}; flock: {theirs:?}; {:.1} times", ours.as_secs_f64() / theirs.as_secs_f64());
    assert!(ours < theirs * 60 + Duration::from_micros(100), "{ours:?} beside {theirs:?}");
}

/// From the call that releases to the return of the call that waited. Both sides are in this process: to the store they are two.
#[test]
fn a_hand_over_takes_a_few_times_as_long_as_that_of_flock() {
    let locks = Locks::new();
    let [one, other] = [0, 1].map(|_| locks.client().fair_lock("x").unwrap());
    let path = locks.0.file("plain");
    let open = || File::create(&path).unwrap();
    let (plain, second) = (open(), open());
    let middle = |take: &(dyn Fn() + Sync), release: &dyn Fn(), wait: &(dyn Fn() -> Instant + Sync)| {
        let hand_over = |_| {
            take();
            thread::scope(|scope| {
                let waiter = scope.spawn(wait);
                thread::sleep(Duration::from_millis(2)); // it waits meanwhile
                let released = Instant::now();
                release();
                waiter.join().unwrap().saturating_duration_since(released)
            })
        };
        let mut times: Vec<Duration> = (0..HAND_OVERS).map(hand_over).collect();
        times.sort();
        times[HAND_OVERS / 2]
    };
    let waits = || {
        let _guard = other.lock().unwrap();
        Instant::now()
    };
    let ours = middle(&|| one.lock().unwrap().leak(), &|| one.unlock().unwrap(), &waits);
    let waits = || {
        second.lock().unwrap();
        let at = Instant::now();
        second.unlock().unwrap();
        at
    };
    let theirs = middle(&|| plain.lock().unwrap(), &|| plain.unlock().unwrap(), &waits);
    println!(
        "a hand-over: {ours:?}; flock: {theirs:?}; {:.1} times",
        ours.as_secs_f64() / theirs.as_secs_f64()
    );
    assert!(ours < theirs * 60 + Duration::from_millis(1), "{ours:?} beside {theirs:?}");
}
