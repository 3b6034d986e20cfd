//! What the rules of all locks share: the parts of a backend, and what an operator may ask for.

use std::sync::Arc;

use crate::durable::Calls;
use crate::script::Scripts;
use crate::wake_ups::WakeUps;

/// Which part of a lock's state an operator wants to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The first rank in the queue, and how many are listed.
    pub(crate) from: u64,
    pub(crate) many: u64,
    /// How many waiters are examined for absent ones.
    pub(crate) examined: u64,
    pub(crate) kinds: Kinds,
}

/// Whether a name in use as another kind of lock is refused, or shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    This,
    Any,
}

/// Whether the request itself leaves the queue, or an operator kicks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Waiter,
    Operator,
}

/// What the operations share.
pub(crate) struct Shared {
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) calls: Calls,
    pub(crate) wake_ups: WakeUps,
}
