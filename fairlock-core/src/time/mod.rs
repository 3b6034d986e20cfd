//! Time as core sees it: a clock that tests can move by hand, and the signal on which threads sleep.

mod manual;
mod signal;
mod task_slot;

use std::time::{Duration, Instant};

pub use manual::{Attendance, Driver, ManualClock};
pub(crate) use signal::{MOMENT, Raise, Signal, Woken};
pub(crate) use task_slot::{TaskSlot, collect_wakers, wake, wake_afterwards};

/// Where time comes from: the system's monotonic clock, or a [`ManualClock`].
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<ManualClock>);

impl Clock {
    /// The system's monotonic clock. (On Linux it stands still while the machine is suspended.)
    pub fn system() -> Clock {
        Clock(None)
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.0.as_ref().map_or_else(Instant::now, ManualClock::now)
    }

    /// Sleeps; with a manual clock, until a test has moved it that far.
    pub fn sleep(&self, time: Duration) {
        let signal = Signal::new(self);
        signal.wait(signal.generation(), self.now().checked_add(time));
    }

    /// The calling thread is inside this library until the result is dropped: a manual clock waits for it before it moves
    /// on.
    pub(crate) fn attend(&self) -> Option<Attendance> {
        self.manual().map(|clock| clock.attend(manual::Role::Caller))
    }

    /// Like [`attend`](Self::attend), for a thread of this library, which does not count as a waiter.
    pub(crate) fn attend_in_background(&self) -> Option<Attendance> {
        self.manual().map(|clock| clock.attend(manual::Role::Background))
    }

    /// A thread of this library is about to be started: a manual clock does not move on before it runs.
    pub(crate) fn announce_background(&self) {
        if let Some(clock) = self.manual() {
            clock.announce();
        }
    }

    /// Whether both are one clock.
    pub(crate) fn is(&self, other: &Clock) -> bool {
        match (self.manual(), other.manual()) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// The manual clock, if it is one.
    pub fn manual(&self) -> Option<&ManualClock> {
        self.0.as_ref()
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Clock {
        Clock(Some(clock))
    }
}
