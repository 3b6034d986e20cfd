//! Calls that ended without the lock: how, and for which kind of lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::ids::{KINDS, LockKind};

/// The calls for locks of each kind that ended without the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotGrantedByKind {
    /// Fair locks.
    pub fair: NotGranted,
    /// Plain locks.
    pub plain: NotGranted,
    /// Read-write locks, for reading and for writing.
    pub read_write: NotGranted,
    /// Semaphores.
    pub semaphore: NotGranted,
}

/// How calls ended without the lock. A request or a task's wait that is dropped is not counted, nor is a call that the end of the
/// client ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotGranted {
    /// An attempt that does not wait found the lock taken.
    pub busy: u64,
    /// The time of the wait was over.
    pub timed_out: u64,
    /// The wait was cancelled.
    pub cancelled: u64,
    /// The server gave no usable answer in time.
    pub unavailable: u64,
    /// The server refused the request: a missing right, or a name that is in use for something else.
    pub refused: u64,
}

impl NotGrantedByKind {
    /// The numbers of all kinds together.
    pub fn total(&self) -> NotGranted {
        let NotGrantedByKind { fair, plain, read_write, semaphore } = self;
        let add = |one: NotGranted, other: &NotGranted| NotGranted {
            busy: one.busy + other.busy,
            timed_out: one.timed_out + other.timed_out,
            cancelled: one.cancelled + other.cancelled,
            unavailable: one.unavailable + other.unavailable,
            refused: one.refused + other.refused,
        };
        [fair, plain, read_write, semaphore].into_iter().fold(NotGranted::default(), add)
    }
}

impl NotGranted {
    /// All of them.
    pub fn total(&self) -> u64 {
        let NotGranted { busy, timed_out, cancelled, unavailable, refused } = self;
        busy + timed_out + cancelled + unavailable + refused
    }
}

/// How one call ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Busy,
    TimedOut,
    Cancelled,
    Unavailable,
    Refused,
}

/// With the value of the label `outcome`.
pub(super) const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Busy, "busy"),
    (Outcome::TimedOut, "timed_out"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::Unavailable, "unavailable"),
    (Outcome::Refused, "refused"),
];

impl Outcome {
    /// Its name in metrics and spans.
    pub(crate) fn name(self) -> &'static str {
        OUTCOMES[self as usize].1
    }

    /// The outcome of this error; none for a mistake or the end of the program, since neither concerns a server or another owner.
    pub(crate) fn of(error: &Error) -> Option<Outcome> {
        match error {
            Error::Cancelled { .. } => Some(Outcome::Cancelled),
            Error::Unavailable { .. } => Some(Outcome::Unavailable),
            Error::Denied { .. }
            | Error::Corrupt { .. }
            | Error::Mismatch { .. }
            | Error::Unsupported { .. }
            | Error::InvalidName { .. }
            | Error::InvalidConfig { .. } => Some(Outcome::Refused),
            Error::NotHeld { .. }
            | Error::Lost(_)
            | Error::Misuse { .. }
            | Error::Shutdown { .. }
            | Error::Unsettled { .. } => None,
        }
    }
}

/// The counts of a tally, by kind and outcome.
#[derive(Default)]
pub(super) struct Counts([[AtomicU64; OUTCOMES.len()]; KINDS.len()]);

impl Counts {
    pub(super) fn count(&self, kind: LockKind, outcome: Outcome) {
        self.0[kind.place()][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> NotGrantedByKind {
        let [fair, plain, read_write, semaphore] = self.0.each_ref().map(|counts| {
            let [busy, timed_out, cancelled, unavailable, refused] =
                counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            NotGranted { busy, timed_out, cancelled, unavailable, refused }
        });
        NotGrantedByKind { fair, plain, read_write, semaphore }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_and_each_outcome_has_a_count_of_its_own() {
        let counts = Counts::default();
        let kinds =
            [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 2 }];
        let mut times = 0;
        for kind in kinds {
            for (outcome, _) in OUTCOMES {
                times += 1;
                (0..times).for_each(|_| counts.count(kind, outcome));
            }
        }
        let NotGrantedByKind { fair, plain, read_write, semaphore } = counts.read();
        let five = |of: NotGranted| [of.busy, of.timed_out, of.cancelled, of.unavailable, of.refused];
        assert_eq!([fair, plain].map(five), [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]);
        assert_eq!([read_write, semaphore].map(five), [[11, 12, 13, 14, 15], [16, 17, 18, 19, 20]]);
        assert_eq!(five(counts.read().total()), [34, 38, 42, 46, 50]);
        assert_eq!((fair.total(), counts.read().total().total()), (15, 210));
    }
}
