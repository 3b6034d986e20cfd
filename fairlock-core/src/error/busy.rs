//! A wait that is over without the lock, and what a look at a slow wait has shown.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Holder, LockState};
use crate::ids::{LockName, OwnerId};
use crate::words::in_words;

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

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Busy { lock, waited, slow_wait } = self;
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
