//! The loss of a hold, and why it came.

use std::fmt;
use std::sync::Arc;

use crate::ids::{FencingToken, LockName, OwnerId, write_escaped};

/// A hold that ended before it was released. With feature `serde` it can be serialized.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Lost {
    /// The lock.
    pub lock: LockName,
    /// The owner that held it.
    pub owner: OwnerId,
    /// The label of the owner's client.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub label: Arc<str>,
    /// The token of the hold.
    pub token: FencingToken,
    /// Why it ended.
    pub cause: LostCause,
}

/// An `Arc` is serialized by an own feature of serde only.
#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { lock, owner, label, token, cause } = self;
        write!(f, "lock {lock} was lost by ")?;
        write_escaped(f, label)?;
        write!(f, " ({owner}, token {token}): {cause}")
    }
}

/// Why a hold ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LostCause {
    /// The lease ended before the server answered a renewal.
    NotRenewed,
    /// The lease of [`fixed_lease`](crate::Lock::fixed_lease) is over.
    LeaseOver,
    /// The limit of [`max_hold`](crate::Lock::max_hold) is reached.
    MaxHold,
    /// The server no longer has the hold: it was taken by force, deleted, evicted, or forgotten in a restart or fail-over.
    Taken,
    /// The client was shut down.
    Shutdown,
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostCause::NotRenewed => "its lease could not be renewed in time",
            LostCause::LeaseOver => "its fixed lease is over",
            LostCause::MaxHold => "its max_hold is over",
            LostCause::Taken => {
                "the store no longer has it: taken by force, deleted, evicted, or forgotten in a restart or fail-over"
            }
            LostCause::Shutdown => "the client was shut down",
        })
    }
}
