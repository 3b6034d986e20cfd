//! The log of releases and withdrawals that the server refuses: one line a minute at most, however many there are. A server that
//! refuses each of them, since a right is missing, would else have a line for each.

use std::time::Instant;

use parking_lot::Mutex;

use crate::backend::BackendError;
use crate::backlog::Cleanup;
use crate::ids::LockName;
use crate::logging::{LineLimit, log_line};

#[derive(Default)]
pub(crate) struct Refused {
    limit: LineLimit,
    /// The first of those that stand in no line yet.
    first: Mutex<Option<First>>,
}

pub(crate) struct First {
    pub(crate) lock: LockName,
    pub(crate) cleanup: Cleanup,
    pub(crate) error: BackendError,
}

impl Refused {
    /// So many more cleanups were refused. Writes the line, if it is due. Returns when the line is due, if that is later.
    pub(crate) fn tell(&self, count: usize, first: First, now: Instant) -> Option<Instant> {
        self.write(Some(first), || self.limit.count(count as u64, now));
        self.limit.due_at()
    }

    /// Writes the line about all that was refused since the last line, if it is due. Returns when the line is due, if that is later.
    pub(crate) fn tell_rest(&self, now: Instant) -> Option<Instant> {
        if self.limit.due_at().is_some_and(|at| at <= now) {
            self.write(None, || self.limit.count(0, now));
        }
        self.limit.due_at()
    }

    /// Writes that line at the end of the client, due or not.
    pub(crate) fn tell_at_the_end(&self) {
        self.write(None, || self.limit.rest());
    }

    fn write(&self, latest: Option<First>, count: impl FnOnce() -> Option<u64>) {
        // Counted under the mutex: another thread must not take the first of what is counted here.
        let mut first = self.first.lock();
        *first = first.take().or(latest);
        let told = count().and_then(|count| Some((count, first.take()?)));
        drop(first);
        let Some((count, First { lock, cleanup, error })) = told else { return };
        log_line!(warn, "fairlock::release",
            event = "refused", lock = lock.as_str(), task:? = cleanup, count = count, error:% = error;
            "{count} releases or withdrawals refused, and repeated; the first is {cleanup:?} for lock {lock}: {error}"
        );
    }
}
