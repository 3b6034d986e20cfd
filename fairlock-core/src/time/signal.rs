//! The signal on which threads sleep: a raise between a thread's check and its sleep is not missed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Clock;
use super::manual::PATIENCE;

/// For how long [`Signal::watch`] watches: about the time that it takes to wake a thread that sleeps in the kernel.
pub(crate) const MOMENT: Duration = Duration::from_micros(20);

/// Counts how often it was raised. A waiter reads [`generation`](Self::generation), *then* checks the state that it waits for, then
/// waits for the generation to change. So a raise between the check and the wait is not missed, and one raise wakes all waiters.
#[derive(Debug)]
pub(crate) struct Signal {
    clock: Clock,
    generation: AtomicU64,
    /// The threads that sleep or are about to; counted under the mutex.
    sleepers: AtomicUsize,
    falling_asleep: Mutex<()>,
    changed: Condvar,
}

/// What a [`Cancel`](crate::Cancel) wakes.
pub(crate) trait Raise: Send + Sync {
    fn raise(&self);
}

/// Why [`Signal::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Raised,
    TimeOut,
}

impl Signal {
    pub(crate) fn new(clock: &Clock) -> Signal {
        Signal {
            clock: clock.clone(),
            generation: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            falling_asleep: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn raise(&self) {
        match self.clock.manual() {
            // The clock marks the sleepers as awake in the same step: it can't move on between the raise and the moment when the
            // sleepers run.
            Some(clock) => clock.raise(self, || self.count()),
            None => {
                self.count();
                // Here the generation is written before the sleepers are read; in the wait it is the other way round (all of it
                // `SeqCst`). So either this thread sees the sleeper, or the sleeper sees the new generation and does not sleep.
                if self.sleepers.load(Ordering::SeqCst) > 0 {
                    // The sleeper may be between its check of the generation and its sleep: then it holds the mutex.
                    drop(self.falling_asleep.lock());
                    self.changed.notify_all();
                }
            }
        }
    }

    /// Sleeps until the signal is raised for the first time after `seen`, or until `deadline`.
    pub(crate) fn wait(&self, seen: u64, deadline: Option<Instant>) -> Woken {
        match self.clock.manual() {
            Some(clock) => clock.wait(self, || self.generation() != seen, deadline, None),
            None => self.wait_on_system_clock(seen, deadline),
        }
    }

    /// As [`wait`](Self::wait), but on a manual clock that does not move it ends after 10 s of real time: at the end of a
    /// client the waiting thread may be the one that would move the clock.
    pub(crate) fn wait_at_the_end(&self, seen: u64, deadline: Instant) -> Woken {
        match self.clock.manual() {
            Some(clock) => {
                let give_up_at = Some(Instant::now() + PATIENCE);
                clock.wait(self, || self.generation() != seen, Some(deadline), give_up_at)
            }
            None => self.wait_on_system_clock(seen, Some(deadline)),
        }
    }

    /// Waits a [`MOMENT`] for a raise after `seen` without going to sleep: two threads that take turns would otherwise pay for
    /// a wake-up at each turn. Another thread that needs this core gets it.
    pub(crate) fn watch(&self, seen: u64) {
        if self.clock.manual().is_some() {
            return;
        }
        let until = Instant::now() + MOMENT;
        while self.generation() == seen && Instant::now() < until {
            thread::yield_now();
        }
    }

    fn count(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn wait_on_system_clock(&self, seen: u64, deadline: Option<Instant>) -> Woken {
        let mut falling_asleep = self.falling_asleep.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut woken = Woken::Raised;
        while self.generation() == seen {
            match deadline {
                None => self.changed.wait(&mut falling_asleep),
                Some(deadline) => {
                    let timed_out = self.changed.wait_until(&mut falling_asleep, deadline).timed_out();
                    if timed_out && self.generation() == seen {
                        woken = Woken::TimeOut;
                        break;
                    }
                }
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_before_the_wait_is_not_missed_and_wakes_all_waiters() {
        for clock in [Clock::system(), super::super::ManualClock::new().into()] {
            let signal = Signal::new(&clock);
            let seen = signal.generation();
            signal.raise();
            assert_eq!(signal.wait(seen, None), Woken::Raised);
            let seen = signal.generation();
            std::thread::scope(|scope| {
                let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| signal.wait(seen, None))).collect();
                signal.raise();
                for waiter in waiters {
                    assert_eq!(waiter.join().unwrap(), Woken::Raised);
                }
            });
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let signal = Signal::new(&Clock::system());
        let deadline = Instant::now() + Duration::from_millis(20);
        assert_eq!(signal.wait(signal.generation(), Some(deadline)), Woken::TimeOut);
        assert!(Instant::now() >= deadline);
    }

    /// No raise is missed, however it meets a thread that falls asleep.
    #[test]
    fn no_raise_is_missed_by_a_thread_that_falls_asleep() {
        const ROUNDS: u64 = 5_000;
        let [there, back] = [(); 2].map(|()| Signal::new(&Clock::system()));
        let hears = |signal: &Signal, round| {
            if round % 2 == 0 {
                signal.watch(round); // every other time mostly awake
            }
            let give_up_at = Instant::now() + Duration::from_secs(20);
            assert_eq!(signal.wait(round, Some(give_up_at)), Woken::Raised, "in round {round}");
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    hears(&there, round);
                    back.raise();
                }
            });
            for round in 0..ROUNDS {
                there.raise();
                hears(&back, round);
            }
        });
    }

    #[test]
    fn a_watch_ends_without_a_raise() {
        let signal = Signal::new(&Clock::system());
        signal.watch(signal.generation());
        assert_eq!(signal.generation(), 0);
    }

    #[test]
    fn a_thread_that_is_woken_without_a_raise_sleeps_on() {
        let signal = Signal::new(&Clock::system());
        let give_up_at = Instant::now() + Duration::from_secs(20);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| signal.wait(0, Some(give_up_at)));
            while signal.sleepers.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for _ in 0..1_000 {
                let _asleep = signal.falling_asleep.lock();
                signal.changed.notify_all();
            }
            signal.raise();
            assert_eq!(sleeper.join().unwrap(), Woken::Raised);
        });
    }
}
