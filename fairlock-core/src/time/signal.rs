//! A bell that threads sleep on: whoever looked before it rang does not sleep through it.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::Clock;

/// Counts how often it was raised. A waiter reads [`epoch`](Self::epoch), *then* looks at the state that it waits
/// for, then waits for the epoch to change; a raise between the look and the wait is not missed, and one raise
/// wakes all who wait.
#[derive(Debug)]
pub(crate) struct Signal {
    clock: Clock,
    epoch: Mutex<u64>,
    changed: Condvar,
}

/// Why [`Signal::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Raised,
    TimeOut,
}

impl Signal {
    pub(crate) fn new(clock: &Clock) -> Arc<Signal> {
        Arc::new(Signal { clock: clock.clone(), epoch: Mutex::new(0), changed: Condvar::new() })
    }

    pub(crate) fn epoch(&self) -> u64 {
        *self.epoch.lock()
    }

    pub(crate) fn raise(&self) {
        match self.clock.manual() {
            // The clock marks the sleepers as awake in the same step, so that it can't move on between the raise
            // and the moment when they run.
            Some(clock) => clock.raise(self, || *self.epoch.lock() += 1),
            None => {
                *self.epoch.lock() += 1;
                self.changed.notify_all();
            }
        }
    }

    /// Sleeps until the signal is raised for the first time after `seen`, or until `deadline`.
    pub(crate) fn wait(&self, seen: u64, deadline: Option<Instant>) -> Woken {
        match self.clock.manual() {
            Some(clock) => clock.wait(self, || self.epoch() != seen, deadline),
            None => self.wait_on_system_clock(seen, deadline),
        }
    }

    fn wait_on_system_clock(&self, seen: u64, deadline: Option<Instant>) -> Woken {
        let mut epoch = self.epoch.lock();
        while *epoch == seen {
            match deadline {
                None => self.changed.wait(&mut epoch),
                Some(deadline) => {
                    if self.changed.wait_until(&mut epoch, deadline).timed_out() && *epoch == seen {
                        return Woken::TimeOut;
                    }
                }
            }
        }
        Woken::Raised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_raise_before_the_wait_is_not_missed_and_wakes_everybody() {
        for clock in [Clock::system(), super::super::ManualClock::new().into()] {
            let signal = Signal::new(&clock);
            let seen = signal.epoch();
            signal.raise();
            assert_eq!(signal.wait(seen, None), Woken::Raised);
            let seen = signal.epoch();
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
        assert_eq!(signal.wait(signal.epoch(), Some(deadline)), Woken::TimeOut);
        assert!(Instant::now() >= deadline);
    }
}
