//! How many locks a part of a client's renewals has, and where the next round begins. A part is one transaction, and a server may be too
//! slow for it: so after a part without an answer parts have half as many locks, and the next round begins behind that part. Parts that
//! are answered in good time grow again.

use fairlock_core::LockName;
use parking_lot::Mutex;

/// How many locks a part has at most.
const MOST: usize = 200;

pub(crate) struct Pace(Mutex<(usize, Option<LockName>)>);

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace(Mutex::new((MOST, None)))
    }

    /// The lock with which this round begins; if none, with the first.
    pub(crate) fn begins_with(&self) -> Option<LockName> {
        self.0.lock().1.take()
    }

    /// How many locks the next part may have.
    pub(crate) fn most(&self) -> usize {
        self.0.lock().0
    }

    /// A part of so many locks was not answered.
    pub(crate) fn unanswered(&self, locks: usize, next: &LockName) {
        *self.0.lock() = ((locks / 2).max(1), Some(next.clone()));
    }

    pub(crate) fn answered_in_good_time(&self) {
        let most = &mut self.0.lock().0;
        *most = (*most * 2).min(MOST);
    }
}
