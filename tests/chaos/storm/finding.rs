//! The promises that a run can break, and what was found.

use std::fmt;
use std::time::Duration;

/// A promise that a run can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Two believe that they hold one lock, or one believes in what the server does not keep.
    Exclusion,
    /// A waiter that was reachable all the time was passed over.
    Order,
    /// Tokens grow.
    Token,
    /// Every loss is told, once, on each way, in time.
    Told,
    /// Every call ends within its bound.
    Bound,
    /// A lock that is free goes to its waiters.
    Liveness,
    /// What no client knows of goes away.
    Ghost,
    /// An answer is true: busy is busy, an error has a reason.
    Answer,
    /// After a shutdown there is nothing.
    Shutdown,
    /// No log storm, and no storm of calls.
    Noise,
    /// Nothing is found by polling when nothing went wrong.
    Polling,
    /// Nothing is left at the end.
    Residue,
}

/// One thing that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    pub promise: Promise,
    pub at: Duration,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}: {}", self.promise, self.at, self.what)
    }
}
