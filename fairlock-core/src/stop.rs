//! What a client still allows: a drain and a shutdown each allow less, and nothing allows more again.

use std::sync::atomic::{AtomicU8, Ordering};

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
