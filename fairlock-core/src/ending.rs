//! What the calls that end a client share.

use parking_lot::Mutex;

use crate::time::Signal;
use crate::{Clock, HeldLock};

pub(crate) struct Ending {
    /// Raised when a claim is over, once a drain waits for that; and at the beginning and the end of a shutdown.
    pub(crate) signal: Signal,
    /// The holds that were cut off, when the client has ended.
    cut_off: Mutex<Option<Vec<HeldLock>>>,
}

impl Ending {
    pub(crate) fn new(clock: &Clock) -> Ending {
        Ending { signal: Signal::new(clock), cut_off: Mutex::default() }
    }

    pub(crate) fn is_over(&self, cut_off: Vec<HeldLock>) {
        *self.cut_off.lock() = Some(cut_off);
        self.signal.raise();
    }

    pub(crate) fn cut_off(&self) -> Option<Vec<HeldLock>> {
        self.cut_off.lock().clone()
    }
}
