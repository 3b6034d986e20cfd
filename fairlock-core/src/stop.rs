//! The flag that ends a client: once it is set, no claim becomes a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by a shutdown. A claim reads it, under its mutex, whenever it would become a hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// Which call set a [`Stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// This one.
    Now,
    /// An earlier one.
    Before,
}

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self) -> Stopping {
        if self.0.swap(true, Ordering::SeqCst) { Stopping::Before } else { Stopping::Now }
    }
}
