//! What can go wrong, as users of locks see it: the errors, a wait that is over without the lock, and the loss of a hold.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::backend::{BackendError, BackendErrorKind, Declined, Holder, LockState, write_text};
use crate::ids::{FencingToken, LockName, OwnerId, write_escaped};
use crate::logging::in_words;

/// The result of the calls of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. A busy lock is never an error.
///
/// `Debug` prints the same message as `Display`, for a `main` that returns the error, and for `unwrap`.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// [`Lock::unlock`](crate::Lock::unlock) was called without a leaked hold of the owner.
    #[non_exhaustive]
    NotHeld {
        /// The lock.
        lock: LockName,
        /// The owner that tried to release it.
        owner: OwnerId,
        /// The label of the owner's client.
        label: Arc<str>,
        /// How many guards of this owner hold the lock; dropping them releases it.
        guards: u32,
        /// Which other owner of this client, a thread or an [`Owner`](crate::Owner), holds the lock.
        held_by: Option<OwnerId>,
    },
    /// The hold ended before it was released: another owner may have had the lock since.
    Lost(Lost),
    /// [`CancelToken::cancel`](crate::CancelToken::cancel) ended the wait.
    #[non_exhaustive]
    Cancelled {
        /// The lock.
        lock: LockName,
    },
    /// The name of a lock can't be used.
    #[non_exhaustive]
    InvalidName {
        /// The name, shortened.
        name: String,
        /// Why.
        reason: String,
    },
    /// A duration, an address or another setting can't work.
    #[non_exhaustive]
    InvalidConfig {
        /// Why.
        reason: String,
        /// Which setting, by the name of the builder's method or of the argument, if it is one.
        setting: Option<&'static str>,
    },
    /// The program should not have made this call, for example with the `Owner` of another client.
    #[non_exhaustive]
    Misuse {
        /// The lock.
        lock: LockName,
        /// Why not.
        reason: String,
    },
    /// The server gave no usable answer within the call's time limit. Whether the server carried out the last request is unknown;
    /// a lock that it may have granted is released in the background. Or the server takes no writes for now, since it is full or
    /// can't save its data: this ends a call at once, unless its request already stands in the queue.
    #[non_exhaustive]
    Unavailable {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
        /// What the backend said last.
        source: Box<BackendError>,
    },
    /// The server denies access: wrong user or password, or a missing right.
    #[non_exhaustive]
    Denied {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
        /// What the server said.
        source: Box<BackendError>,
    },
    /// The server keeps something else than a lock under this name.
    #[non_exhaustive]
    Corrupt {
        /// The lock.
        lock: LockName,
        /// What was found.
        source: Box<BackendError>,
    },
    /// The name is in use for a lock of another kind.
    #[non_exhaustive]
    Mismatch {
        /// The lock.
        lock: LockName,
        /// What it is elsewhere.
        source: Box<BackendError>,
    },
    /// The backend, as it is set up, keeps no locks of this kind; or a newer version of fairlock keeps the lock, in a layout that
    /// this version does not know: upgrade this program.
    #[non_exhaustive]
    Unsupported {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
        /// Why not; for a layout, with its number.
        source: Box<BackendError>,
    },
    /// [`Client::shutdown`](crate::Client::shutdown) or [`drain`](crate::Client::drain) was called.
    #[non_exhaustive]
    Shutdown {
        /// The lock, when the call was about one.
        lock: Option<LockName>,
    },
    /// [`Client::shutdown`](crate::Client::shutdown) ended the client, but could not tell the server of everything in time.
    /// What it was not told of ends with its lease, or with its place's time to live.
    #[non_exhaustive]
    Unsettled {
        /// How many holds and places are left.
        count: usize,
        /// The lock of the first of them.
        lock: LockName,
        /// What the backend said last about it.
        source: Box<BackendError>,
    },
}

impl Error {
    /// Whether the same call may succeed later although the program and its settings stay the same. True for
    /// [`Error::Unavailable`] alone: the server is down, restarting, busy or full, or the network is. A server that will never
    /// take the call is [`InvalidConfig`](Error::InvalidConfig), such as a replica whose master is well.
    ///
    /// All the others stay what they are. [`Denied`](Error::Denied), [`Corrupt`](Error::Corrupt), [`Mismatch`](Error::Mismatch),
    /// [`Unsupported`](Error::Unsupported), [`InvalidName`](Error::InvalidName), [`InvalidConfig`](Error::InvalidConfig), [`NotHeld`](Error::NotHeld) and
    /// [`Misuse`](Error::Misuse) need another program, setting or right; [`Cancelled`](Error::Cancelled),
    /// [`Shutdown`](Error::Shutdown) and [`Unsettled`](Error::Unsettled) are the program's own end. [`Lost`](Error::Lost) is no
    /// reason to try again blindly: the work was done, in part or whole, and whether it may be done twice only the program knows.
    ///
    /// After a transient error of [`Lock::with`](crate::Lock::with) the closure was not called.
    ///
    /// ```
    /// # use fairlock::testing::Operation;
    /// # use fairlock::{Client, MemoryBackend};
    /// # let store = MemoryBackend::new();
    /// # let client = Client::new(store.clone())?;
    /// let lock = client.fair_lock("lock:orders")?;
    /// store.faults().fail_next(Operation::Acquire, 2); // the server is away for two calls
    /// let error = lock.try_with(|_| "done").expect_err("the server is away");
    /// assert!(error.is_transient()); // put the job back and go on
    /// # Ok::<(), fairlock::Error>(())
    /// ```
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// The lock that the call was about, if it was about one.
    pub fn lock_name(&self) -> Option<&LockName> {
        match self {
            Error::NotHeld { lock, .. }
            | Error::Cancelled { lock }
            | Error::Misuse { lock, .. }
            | Error::Unsettled { lock, .. }
            | Error::Mismatch { lock, .. }
            | Error::Corrupt { lock, .. } => Some(lock),
            Error::Lost(lost) => Some(&lost.lock),
            Error::Unavailable { lock, .. }
            | Error::Denied { lock, .. }
            | Error::Unsupported { lock, .. }
            | Error::Shutdown { lock } => lock.as_ref(),
            Error::InvalidName { .. } | Error::InvalidConfig { .. } => None,
        }
    }

    /// The setting that the error is about, by the name of the builder's method. If it is some, the text of the error ends with it, in
    /// parentheses.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Error::InvalidConfig { setting, .. } => *setting,
            Error::Unavailable { source, .. }
            | Error::Denied { source, .. }
            | Error::Unsettled { source, .. }
            | Error::Mismatch { source, .. }
            | Error::Unsupported { source, .. }
            | Error::Corrupt { source, .. } => source.setting(),
            _ => None,
        }
    }

    /// The error of a call about `lock`, from what the backend said.
    pub fn about(lock: &LockName, error: BackendError) -> Error {
        let named = Some(lock.clone());
        match error.kind() {
            BackendErrorKind::Unavailable | BackendErrorKind::Refused => {
                Error::Unavailable { lock: named, source: Box::new(error) }
            }
            BackendErrorKind::Denied => Error::Denied { lock: named, source: Box::new(error) },
            BackendErrorKind::Corrupt => Error::Corrupt { lock: lock.clone(), source: Box::new(error) },
            BackendErrorKind::Mismatch => Error::Mismatch { lock: lock.clone(), source: Box::new(error) },
            BackendErrorKind::Unsupported => Error::Unsupported { lock: named, source: Box::new(error) },
            BackendErrorKind::InvalidName => {
                Error::InvalidName { name: lock.as_str().to_owned(), reason: error.message().to_owned() }
            }
            BackendErrorKind::InvalidConfig => {
                let reason = format!("lock {lock}: {}", error.message());
                Error::InvalidConfig { reason, setting: error.setting() }
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotHeld { lock, owner, label, guards, held_by } => {
                write!(f, "lock {lock} is not held by ")?;
                write_escaped(f, label)?;
                write!(f, " ({owner}): ")?;
                match (guards, held_by) {
                    (0, None) => f.write_str("it was never locked here, or is already unlocked"),
                    (0, Some(other)) => write!(
                        f,
                        "another thread or `Owner` of this client holds it, {other}; unlock it there"
                    ),
                    (guards, _) => {
                        write!(f, "no hold of it was leaked, and {guards} guard(s) hold it: drop them")
                    }
                }
            }
            Error::Lost(lost) => lost.fmt(f),
            Error::Cancelled { lock } => write!(f, "the wait for lock {lock} was cancelled"),
            Error::InvalidName { name, reason } => {
                f.write_str("invalid lock name ")?;
                write_escaped(f, name)?;
                write!(f, ": {reason}")
            }
            Error::InvalidConfig { reason, setting } => {
                f.write_str("invalid configuration: ")?;
                write_text(f, reason, *setting)
            }
            Error::Misuse { lock, reason } => write!(f, "misuse of lock {lock}: {reason}"),
            Error::Unavailable { lock, source } => {
                write!(f, "the store is unavailable{}: {source}", about(lock.as_ref()))
            }
            Error::Denied { lock, source } => {
                write!(f, "the store denies access{}: {source}", about(lock.as_ref()))
            }
            Error::Corrupt { lock, source } => write!(f, "lock {lock} can't be read: {source}"),
            Error::Mismatch { lock, source } => {
                write!(f, "lock {lock} is in use for something else: {source}")
            }
            Error::Unsupported { lock: Some(lock), source } => {
                write!(f, "lock {lock} can't be used: {source}")
            }
            Error::Unsupported { lock: None, source } => write!(f, "the store can't be used: {source}"),
            Error::Shutdown { lock } => write!(f, "the client was shut down{}", about(lock.as_ref())),
            Error::Unsettled { count, lock, source } => write!(
                f,
                "the client was shut down, and {count} hold(s) or place(s) could not be released; \
                 the first is of lock {lock}: {source}"
            ),
        }
    }
}

fn about(lock: Option<&LockName>) -> String {
    lock.map_or_else(String::new, |lock| format!(" (lock {lock})"))
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Unavailable { source, .. }
            | Error::Denied { source, .. }
            | Error::Unsettled { source, .. }
            | Error::Mismatch { source, .. }
            | Error::Unsupported { source, .. }
            | Error::Corrupt { source, .. } => source.source(),
            _ => None,
        }
    }
}

impl From<BackendError> for Error {
    /// For a backend that could not connect: no lock is named yet.
    fn from(error: BackendError) -> Error {
        use BackendErrorKind::{
            Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Refused, Unavailable, Unsupported,
        };
        match error.kind() {
            Unsupported => Error::Unsupported { lock: None, source: Box::new(error) },
            Denied => Error::Denied { lock: None, source: Box::new(error) },
            Unavailable | Refused => Error::Unavailable { lock: None, source: Box::new(error) },
            // The server has something else than it was set up for, and goes on having it.
            InvalidConfig | InvalidName | Corrupt | Mismatch => {
                Error::InvalidConfig { reason: error.message().to_owned(), setting: error.setting() }
            }
        }
    }
}

/// Other owners had the lock, or stood ahead in its queue, until the wait was over. This is no [`Error`](crate::Error), but a program can
/// return it as an error of its own: ``waited 4.2 s for lock `orders`; after 1 s: 3 ahead, held by host-7:4123 for 3.9 s (token 17)``.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Busy {
    /// The lock.
    pub lock: LockName,
    /// How long the request has waited.
    pub waited: Duration,
    /// What the request waited for, when the client wrote the line about this [slow wait](crate::ClientBuilder::slow_wait). None if
    /// the client wrote no such line: the wait was shorter, or the one look a second went to longer waits.
    pub slow_wait: Option<Arc<SlowWait>>,
    /// Which condition was not met, if the request named one: [`Lock::every`](crate::Lock::every) and its like. None if other owners had
    /// the lock.
    pub declined: Option<Declined>,
}

/// What a slow wait waits for, as the client saw it when it wrote the line in the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SlowWait {
    /// How long the request had waited by then.
    pub waited: Duration,
    /// How many waiters were ahead, as last heard. None for a plain lock.
    pub ahead: Option<u64>,
    /// The lock, with its holders. It lists no waiter, and counts none as absent.
    pub state: LockState,
    pub(crate) held_by: String,
}

/// No later time is written: the year has four digits.
const LATEST: Duration = Duration::from_secs(253_402_300_799);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Busy { lock, waited, slow_wait, declined } = self;
        match declined {
            Some(Declined::Granted(at)) => {
                let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + (*at).min(LATEST));
                return write!(f, "lock {lock} was done at {at}, in this period");
            }
            Some(Declined::Ahead(ahead)) => return write!(f, "lock {lock} is busy, with {ahead} ahead"),
            None => {}
        }
        let time = to_a_tenth(*waited);
        match slow_wait {
            Some(seen) => {
                write!(f, "waited {time} for lock {lock}; after {}: {seen}", to_a_tenth(seen.waited))
            }
            None if *waited < Duration::from_millis(100) => write!(f, "lock {lock} is busy"),
            None => write!(f, "waited {time} for lock {lock}, which is busy"),
        }
    }
}

impl StdError for Busy {}

/// `3 ahead, held by host-7:4123 for 3.9 s (token 17)`.
impl fmt::Display for SlowWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ahead) = self.ahead {
            write!(f, "{ahead} ahead, ")?;
        }
        f.write_str(&self.held_by)
    }
}

/// `held by host-7:4123 for 3.9 s (token 17)`. A waiter of the same client would look for another process in vain.
pub(crate) fn held_by(state: &LockState, waiter: &OwnerId, is_task: bool) -> String {
    let Some(holder) = state.holder() else { return "held by nobody".to_owned() };
    let time = holder.held_for.map(|time| format!(" for {}", to_a_tenth(time))).unwrap_or_default();
    let token = holder.token.map(|token| format!(" (token {token})")).unwrap_or_default();
    let more = match (state.holders.len() as u64 - 1) + state.unlisted_holders {
        0 => String::new(),
        more => format!(", and by {more} more"),
    };
    let name = match (holder.owner.client() == waiter.client(), is_task) {
        (false, _) => name_of(holder),
        (true, false) => "this client itself".to_owned(),
        (true, true) => "this client itself (a task's wait never re-enters)".to_owned(),
    };
    format!("held by {name}{time}{token}{more}")
}

/// A label that another program wrote may have anything in it.
pub(crate) fn name_of(holder: &Holder) -> String {
    let name = holder.label.as_deref().unwrap_or(holder.owner.as_str());
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

pub(crate) fn to_a_tenth(time: Duration) -> String {
    in_words(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 100 * 100))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClientId, FencingToken};

    /// What a backend said is told with the lock, if a lock is known, and with the cause.
    #[test]
    fn a_backends_error_names_the_lock_and_the_cause() {
        use BackendErrorKind::{
            Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Refused, Unavailable, Unsupported,
        };
        let lock = LockName::new("x").unwrap();
        let said = |kind| BackendError::new(kind, "why").with_source(std::io::Error::other("reset"));
        for (kind, about, from) in [
            (Unavailable, "the store is unavailable (lock `x`): why", "the store is unavailable: why"),
            (Refused, "the store is unavailable (lock `x`): why", "the store is unavailable: why"),
            (Denied, "the store denies access (lock `x`): why", "the store denies access: why"),
            (Corrupt, "lock `x` can't be read: why", "invalid configuration: why"),
            (Mismatch, "lock `x` is in use for something else: why", "invalid configuration: why"),
            (Unsupported, "lock `x` can't be used: why", "the store can't be used: why"),
            (InvalidName, "invalid lock name `x`: why", "invalid configuration: why"),
            (InvalidConfig, "invalid configuration: lock `x`: why", "invalid configuration: why"),
        ] {
            let (named, unnamed) = (Error::about(&lock, said(kind)), Error::from(said(kind)));
            assert_eq!((named.to_string(), unnamed.to_string()), (about.to_owned(), from.to_owned()));
            let names_it = !matches!(kind, InvalidName | InvalidConfig);
            assert_eq!((named.lock_name(), unnamed.lock_name()), (names_it.then_some(&lock), None));
            assert_eq!(named.source().map(ToString::to_string), names_it.then(|| "reset".to_owned()));
            let may_pass = matches!(kind, Unavailable | Refused);
            assert_eq!([named.is_transient(), unnamed.is_transient()], [may_pass; 2], "{kind:?}");
        }
    }

    #[test]
    fn a_busy_lock_says_what_kept_the_request_from_it() {
        let busy = |waited, declined| {
            let lock = LockName::new("report").unwrap();
            Busy { lock, waited: Duration::from_millis(waited), slow_wait: None, declined }.to_string()
        };
        let granted = |seconds| Some(Declined::Granted(Duration::from_secs(seconds)));
        let said = "lock `report` was done at 2026-11-29T10:00:03Z, in this period";
        assert_eq!(busy(0, granted(1_795_946_403)), said);
        assert_eq!(busy(0, Some(Declined::Ahead(2))), "lock `report` is busy, with 2 ahead");
        assert_eq!(busy(99, None), "lock `report` is busy");
        assert_eq!(busy(4_200, None), "waited 4.2 s for lock `report`, which is busy");
        assert!(busy(0, granted(u64::MAX)).contains("9999-12-31"));
    }

    fn not_held(guards: u32, held_by: Option<&str>) -> Error {
        Error::NotHeld {
            lock: LockName::new("orders").unwrap(),
            owner: OwnerId::new("u:1"),
            label: "worker 3".into(),
            guards,
            held_by: held_by.map(OwnerId::new),
        }
    }

    #[test]
    fn a_lock_that_is_not_held_says_by_what_label_and_what_to_do() {
        for (guards, held_by, says) in [
            (0, None, "it was never locked here, or is already unlocked"),
            (0, Some("u:2"), "another thread or `Owner` of this client holds it, u:2; unlock it there"),
            (2, None, "no hold of it was leaked, and 2 guard(s) hold it: drop them"),
        ] {
            let said = format!("lock `orders` is not held by `worker 3` (u:1): {says}");
            assert_eq!(not_held(guards, held_by).to_string(), said);
        }
    }

    #[test]
    fn only_an_unavailable_server_is_transient() {
        let lock = || LockName::new("orders").unwrap();
        let owner = OwnerId::of(ClientId::random(), 1);
        let source = || Box::new(BackendError::new(BackendErrorKind::Unavailable, "away"));
        let lost = |cause| {
            Error::Lost(Lost {
                lock: lock(),
                owner: owner.clone(),
                label: "w".into(),
                token: FencingToken::new(1),
                cause,
            })
        };
        assert!(Error::Unavailable { lock: None, source: source() }.is_transient());
        let lasting = [
            not_held(0, None),
            lost(LostCause::NotRenewed),
            lost(LostCause::Taken),
            Error::Cancelled { lock: lock() },
            Error::InvalidName { name: String::new(), reason: "it is empty".into() },
            Error::InvalidConfig { reason: "it can't work".into(), setting: None },
            Error::Misuse { lock: lock(), reason: "another client's owner".to_owned() },
            Error::Denied { lock: None, source: source() },
            Error::Corrupt { lock: lock(), source: source() },
            Error::Mismatch { lock: lock(), source: source() },
            Error::Unsupported { lock: None, source: source() },
            Error::Shutdown { lock: None },
            Error::Unsettled { count: 1, lock: lock(), source: source() },
        ];
        for error in lasting {
            assert!(!error.is_transient(), "{error}");
        }
    }
}
