//! What the calls that end a client share.

use std::sync::atomic::{AtomicUsize, Ordering};

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
