//! The end of a client: what the client still allows, which a drain and a shutdown lessen, and what the calls that end it share.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::backend::BackendError;
use crate::error::{Error, Result};
use crate::ids::LockName;
use crate::snapshot::HeldLock;
use crate::time::{Clock, Signal};

pub(crate) struct Ending {
    /// Raised when a claim is over, once a drain waits for that; and at the beginning and the end of a shutdown.
    pub(crate) signal: Signal,
    /// How many losses are being reported: the client does not end before the callbacks have them.
    reporting: AtomicUsize,
    /// How the client has ended; none before.
    ended: Mutex<Option<Ended>>,
}

/// How a client has ended.
#[derive(Clone)]
pub(crate) struct Ended {
    /// The holds that were lost by that.
    pub(crate) cut_off: Vec<HeldLock>,
    pub(crate) unsettled: Option<Unsettled>,
}

/// What the server could not be told of.
#[derive(Clone)]
pub(crate) struct Unsettled {
    pub(crate) count: usize,
    pub(crate) lock: LockName,
    pub(crate) error: BackendError,
}

impl Ending {
    pub(crate) fn new(clock: &Clock) -> Ending {
        Ending { signal: Signal::new(clock), reporting: AtomicUsize::new(0), ended: Mutex::default() }
    }

    /// Runs `report`, which marks a hold as lost and reports that.
    pub(crate) fn reporting<T>(&self, report: impl FnOnce() -> T) -> T {
        self.reporting.fetch_add(1, Ordering::SeqCst);
        let reported = report();
        self.reporting.fetch_sub(1, Ordering::SeqCst);
        reported
    }

    /// Whether each loss that was marked is reported.
    pub(crate) fn all_reported(&self) -> bool {
        self.reporting.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn is_over(&self, ended: Ended) {
        *self.ended.lock() = Some(ended);
        self.signal.raise();
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.lock().clone()
    }
}

impl Ended {
    /// # Errors
    /// [`Error::Unsettled`].
    pub(crate) fn cut_off(self) -> Result<Vec<HeldLock>> {
        match self.unsettled {
            None => Ok(self.cut_off),
            Some(Unsettled { count, lock, error }) => {
                Err(Error::Unsettled { count, lock, source: Box::new(error) })
            }
        }
    }
}

/// Open, closed or stopped; it only grows. A claim reads it, under its mutex, whenever it would become a hold: see `Held::may_be`.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicU8);

const OPEN: u8 = 0;
/// After a drain: no claim becomes a hold, and holds go on.
const CLOSED: u8 = 1;
/// After a shutdown: no hold goes on either.
const STOPPED: u8 = 2;

/// Which call has stopped a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    Now,
    Before,
}

impl Stop {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) != OPEN
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst) == STOPPED
    }

    pub(crate) fn close(&self) {
        self.0.fetch_max(CLOSED, Ordering::SeqCst);
    }

    pub(crate) fn stop(&self) -> Stopping {
        match self.0.swap(STOPPED, Ordering::SeqCst) {
            STOPPED => Stopping::Before,
            _ => Stopping::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_grows() {
        let stop = Stop::default();
        let is = || (stop.is_closed(), stop.is_stopped());
        assert_eq!(is(), (false, false));
        stop.close();
        assert_eq!(is(), (true, false));
        assert_eq!((stop.stop(), is()), (Stopping::Now, (true, true)));
        stop.close();
        assert_eq!((stop.stop(), is()), (Stopping::Before, (true, true)));
    }
}
