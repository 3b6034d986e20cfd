//! What was found.

use std::fmt;
use std::time::Duration;

use fairlock_tests::oracle::Promise;

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
