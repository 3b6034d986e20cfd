//! What can go wrong, as users of locks see it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::backend::{BackendError, BackendErrorKind};
use crate::ids::write_escaped;
use crate::{FencingToken, LockName, OwnerId};

/// What the calls of this library return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. That a lock is busy is never an error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The owner does not hold the lock, so there is nothing to give back.
    NotHeld {
        /// The lock.
        lock: LockName,
        /// Who tried to give it back.
        owner: OwnerId,
        /// How many guards of this owner hold it all the same: they give it back when they are dropped.
        guards: u32,
    },
    /// The hold ended before it was given back: someone else may have had the lock meanwhile.
    Lost(Lost),
    /// [`Cancel::cancel`](crate::Cancel::cancel) ended the wait.
    Cancelled {
        /// The lock.
        lock: LockName,
    },
    /// The name of a lock is not one that can be used.
    InvalidName {
        /// The name, shortened.
        name: String,
        /// Why.
        reason: String,
    },
    /// A duration, an address or another setting that can't work.
    InvalidConfig {
        /// Which, and why.
        reason: String,
    },
    /// A call that the program should not have made, such as with the `Owner` of another client.
    Misuse {
        /// The lock.
        lock: LockName,
        /// What was wrong.
        reason: &'static str,
    },
    /// The server gave no answer that could be used, for as long as the call's bound says. Whether the last
    /// request was carried out is not known; what it may have taken is given back in the background.
    Unavailable {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
        /// What the backend said last.
        source: Box<BackendError>,
    },
    /// The server refuses us: password, user, or a right that is missing.
    Denied {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
        /// What the server said.
        source: Box<BackendError>,
    },
    /// Under the name of the lock the server keeps something that is not a lock.
    Corrupt {
        /// The lock.
        lock: LockName,
        /// What was found.
        source: Box<BackendError>,
    },
    /// [`Client::shutdown`](crate::Client::shutdown) was called.
    Shutdown {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
    },
    /// [`Client::shutdown`](crate::Client::shutdown) has ended the client, but could not tell the server of everything in
    /// time. What is left ends with its lease, or with its place's time to live.
    Unsettled {
        /// How many holds and places are left.
        count: usize,
        /// The lock of the first.
        lock: LockName,
        /// What the backend said last about the first.
        source: Box<BackendError>,
    },
}

impl Error {
    /// The lock that the call was about.
    pub fn lock_name(&self) -> Option<&LockName> {
        match self {
            Error::NotHeld { lock, .. }
            | Error::Cancelled { lock }
            | Error::Misuse { lock, .. }
            | Error::Unsettled { lock, .. }
            | Error::Corrupt { lock, .. } => Some(lock),
            Error::Lost(lost) => Some(&lost.lock),
            Error::Unavailable { lock, .. } | Error::Denied { lock, .. } | Error::Shutdown { lock } => {
                lock.as_ref()
            }
            Error::InvalidName { .. } | Error::InvalidConfig { .. } => None,
        }
    }

    /// What a backend said in a call about `lock`.
    pub(crate) fn about(lock: &LockName, error: BackendError) -> Error {
        let named = Some(lock.clone());
        match error.kind() {
            BackendErrorKind::Unavailable => Error::Unavailable { lock: named, source: Box::new(error) },
            BackendErrorKind::Denied => Error::Denied { lock: named, source: Box::new(error) },
            BackendErrorKind::Corrupt => Error::Corrupt { lock: lock.clone(), source: Box::new(error) },
            BackendErrorKind::InvalidName => {
                Error::InvalidName { name: lock.as_str().to_owned(), reason: error.message().to_owned() }
            }
            BackendErrorKind::InvalidConfig => Error::InvalidConfig { reason: error.message().to_owned() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotHeld { lock, owner, guards: 0 } => write!(f, "lock {lock} is not held by {owner}"),
            Error::NotHeld { lock, owner, guards } => {
                write!(
                    f,
                    "lock {lock} has no leaked hold of {owner}: it is held by {guards} guard(s), drop them"
                )
            }
            Error::Lost(lost) => lost.fmt(f),
            Error::Cancelled { lock } => write!(f, "the wait for lock {lock} was cancelled"),
            Error::InvalidName { name, reason } => {
                f.write_str("invalid lock name ")?;
                write_escaped(f, name)?;
                write!(f, ": {reason}")
            }
            Error::InvalidConfig { reason } => write!(f, "invalid configuration: {reason}"),
            Error::Misuse { lock, reason } => write!(f, "misuse of lock {lock}: {reason}"),
            Error::Unavailable { lock, source } => {
                f.write_str("the server is unavailable")?;
                about(f, lock.as_ref())?;
                write!(f, ": {source}")
            }
            Error::Denied { lock, source } => {
                f.write_str("the server denies access")?;
                about(f, lock.as_ref())?;
                write!(f, ": {source}")
            }
            Error::Corrupt { lock, source } => write!(f, "lock {lock} can't be read: {source}"),
            Error::Shutdown { lock } => {
                f.write_str("the client was shut down")?;
                about(f, lock.as_ref())
            }
            Error::Unsettled { count, lock, source } => write!(
                f,
                "the client was shut down, and {count} hold(s) or place(s) could not be given back; \
                 the first is of lock {lock}: {source}"
            ),
        }
    }
}

fn about(f: &mut fmt::Formatter<'_>, lock: Option<&LockName>) -> fmt::Result {
    lock.map_or(Ok(()), |lock| write!(f, " (lock {lock})"))
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unavailable { source, .. }
            | Error::Denied { source, .. }
            | Error::Unsettled { source, .. }
            | Error::Corrupt { source, .. } => source.source(),
            _ => None,
        }
    }
}

impl From<BackendError> for Error {
    /// For a backend that could not be made: no lock is named yet.
    fn from(error: BackendError) -> Error {
        match error.kind() {
            BackendErrorKind::Denied => Error::Denied { lock: None, source: Box::new(error) },
            BackendErrorKind::InvalidConfig | BackendErrorKind::InvalidName => {
                Error::InvalidConfig { reason: error.message().to_owned() }
            }
            BackendErrorKind::Unavailable | BackendErrorKind::Corrupt => {
                Error::Unavailable { lock: None, source: Box::new(error) }
            }
        }
    }
}

/// A hold that ended before it was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The lock.
    pub lock: LockName,
    /// Who held it.
    pub owner: OwnerId,
    /// The label of his client.
    pub label: Arc<str>,
    /// The token of the hold.
    pub token: FencingToken,
    /// Why it ended.
    pub cause: LostCause,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { lock, owner, label, token, cause } = self;
        write!(f, "lock {lock} was lost by ")?;
        write_escaped(f, label)?;
        write!(f, " ({owner}, token {token}): {cause}")
    }
}

/// Why a hold ended before it was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostCause {
    /// The server could not be asked to prolong the lease before it ended.
    NotRenewed,
    /// The lease of [`fixed_lease`](crate::Lock::fixed_lease) is over.
    LeaseOver,
    /// The limit of [`max_hold`](crate::Lock::max_hold) is reached.
    MaxHold,
    /// The server says that the lock is not ours: forced, deleted, or expired there.
    Taken,
    /// The client was shut down.
    Shutdown,
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostCause::NotRenewed => "its lease could not be renewed in time",
            LostCause::LeaseOver => "its fixed lease is over",
            LostCause::MaxHold => "its longest hold is over",
            LostCause::Taken => "it was taken away at the server",
            LostCause::Shutdown => "the client was shut down",
        })
    }
}
