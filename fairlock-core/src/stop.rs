//! The flag that ends a client: once it is set, no claim becomes a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by a shutdown. A claim reads it, under its mutex, whenever it would become a hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns whether an earlier call has set it.
    pub(crate) fn set(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }
}
