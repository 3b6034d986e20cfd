//! Redisson's line beside ours: what the scripts are told of it, and what they say.
//!
//! A lock can have both, where some clients use discipline `Redisson` (Java's are such) and some `HandOff`. The right to the
//! keys of the other line is not needed for a lock of ours. Each look without it is an entry in the server's ACL LOG, so a
//! refusal is remembered.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::{BackendError, LockId};
use parking_lot::Mutex;

use crate::keys::{Keys, lock_channel};

/// For so long nobody looks again. The rights may have been mended.
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// So many locks are remembered. If that many are refused it is no matter of their names: then none is looked at.
const MOST_REFUSED: usize = 16;

/// What a backend knows of the other lines of its locks.
#[derive(Default)]
pub(crate) struct TwoLines {
    /// The locks of which somebody was told that two lines want them.
    warned: Mutex<HashSet<LockName>>,
    /// The locks whose other line the user may not look at, and since when that is known.
    refused: Mutex<HashMap<LockName, Instant>>,
}

/// What a script said of the other line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherLine {
    Absent,
    Present,
    Refused,
}

impl OtherLine {
    pub(crate) fn read(number: i64) -> OtherLine {
        match number {
            1 => OtherLine::Present,
            2 => OtherLine::Refused,
            _ => OtherLine::Absent,
        }
    }
}

impl TwoLines {
    /// What a script is told, in this order: the channel of those who wait for a plain lock, which is also the beginning of
    /// those of the other line; the keys of that line and of its times, empty where they are not to be looked at.
    pub(crate) fn named(&self, lock: &LockId) -> Result<[String; 3], BackendError> {
        let channel = lock_channel(lock);
        if self.is_refused(&lock.name, Instant::now()) {
            return Ok([channel, String::new(), String::new()]);
        }
        let Keys { queue, timeouts, .. } = Keys::of(lock)?;
        Ok([channel, queue, timeouts])
    }

    /// Takes what a script has said.
    pub(crate) fn seen(&self, lock: &LockId, other: OtherLine) {
        match other {
            OtherLine::Absent => {}
            OtherLine::Present => self.warn(&lock.name),
            OtherLine::Refused => {
                let mut refused = self.refused.lock();
                if refused.len() < MOST_REFUSED {
                    refused.insert(lock.name.clone(), Instant::now());
                }
            }
        }
    }

    fn is_refused(&self, lock: &LockName, now: Instant) -> bool {
        let mut refused = self.refused.lock();
        if refused.is_empty() {
            return false;
        }
        refused.retain(|_, since| now.saturating_duration_since(*since) < REFUSED_FOR);
        refused.len() == MOST_REFUSED || refused.contains_key(lock)
    }

    fn warn(&self, lock: &LockName) {
        if self.warned.lock().insert(lock.clone()) {
            log::warn!(
                target: "fairlock::acquire",
                event = "two lines", lock = lock.as_str();
                "lock {lock}: clients wait for it in Redisson's line (discipline `Redisson`) and in ours (`HandOff`); \
                 there is no order between the two, and each lets the other have a turn only now and then: choose one \
                 discipline for all clients of a lock"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::LockKind;

    fn id(name: &str) -> LockId {
        LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
    }

    #[test]
    fn a_refused_line_is_not_named_for_an_hour() {
        let (lines, lock, other) = (TwoLines::default(), id("a"), id("b"));
        assert_eq!(lines.named(&lock).unwrap()[1], "redisson_lock_queue:{a}");
        lines.seen(&lock, OtherLine::Refused);
        assert_eq!(lines.named(&lock).unwrap()[1..], ["", ""]);
        assert_eq!(lines.named(&other).unwrap()[1], "redisson_lock_queue:{b}");
        assert!(!lines.is_refused(&lock.name, Instant::now() + REFUSED_FOR));
        assert_eq!(lines.named(&lock).unwrap()[1], "redisson_lock_queue:{a}");
    }

    #[test]
    fn where_many_are_refused_none_is_named() {
        let lines = TwoLines::default();
        (0..2 * MOST_REFUSED).for_each(|n| lines.seen(&id(&n.to_string()), OtherLine::Refused));
        assert_eq!(lines.named(&id("another")).unwrap()[1], "");
        assert_eq!(lines.refused.lock().len(), MOST_REFUSED);
    }
}
