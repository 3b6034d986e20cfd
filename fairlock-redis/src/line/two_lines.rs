//! Redisson's line beside ours: whether the scripts may look at it, and what they report of it.
//!
//! A lock can have both lines, where some clients use discipline `Redisson` (Java's are such) and some `HandOff`. Our
//! locks work without the right to the keys of the other line. But each access without it makes an entry in the server's
//! ACL LOG, so a refusal is remembered.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use parking_lot::Mutex;

/// How long a refusal counts. The rights may change.
const REFUSED_FOR: Duration = Duration::from_secs(3600);
/// The most refusals to remember. With that many the names do not matter: no other line is accessed then.
const MOST_REFUSED: usize = 16;

/// The most locks that the log warns about: by then it has been said often enough.
const MOST_WARNED: usize = 16;

/// What a backend knows of the other lines of its locks.
#[derive(Default)]
pub(crate) struct TwoLines {
    /// The locks whose two lines the log has a warning about.
    warned: Mutex<HashSet<LockName>>,
    /// The locks whose other line the user may not access, and when that was found.
    refused: Mutex<HashMap<LockName, Instant>>,
}

impl TwoLines {
    /// Whether scripts may look at the other line.
    pub(crate) fn may_look(&self, lock: &LockName, now: impl FnOnce() -> Instant) -> bool {
        let mut refused = self.refused.lock();
        // Mostly there is nothing to forget, and no time to read.
        if refused.is_empty() {
            return true;
        }
        let now = now();
        refused.retain(|_, since| now.saturating_duration_since(*since) < REFUSED_FOR);
        refused.len() < MOST_REFUSED && !refused.contains_key(lock)
    }

    /// What a script reports of the other line: 1 if it is there, 2 if it is refused.
    pub(crate) fn seen(&self, lock: &LockName, other: i64) {
        match other {
            1 => self.warn(lock),
            2 => {
                let mut refused = self.refused.lock();
                if refused.len() < MOST_REFUSED {
                    refused.insert(lock.clone(), Instant::now());
                }
            }
            _ => {}
        }
    }

    fn warn(&self, lock: &LockName) {
        let is_news = {
            let mut warned = self.warned.lock();
            warned.len() < MOST_WARNED && warned.insert(lock.clone())
        };
        if is_news {
            log::warn!(
                target: "fairlock::acquire",
                event = "two lines", lock = lock.as_str();
                "lock {lock}: clients wait for it in Redisson's line (discipline `Redisson`) and in ours (`HandOff`); \
                 there is no order between the two, and each gives the other a turn only now and then: choose one \
                 discipline for all clients of a lock"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_line_is_left_alone_for_an_hour() {
        let names = ["a", "b"].map(|name| LockName::new(name).unwrap());
        let lines = TwoLines::default();
        assert!(lines.may_look(&names[0], Instant::now));
        lines.seen(&names[0], 2);
        assert_eq!(names.each_ref().map(|name| lines.may_look(name, Instant::now)), [false, true]);
        let since = lines.refused.lock()[&names[0]];
        assert!(!lines.may_look(&names[0], || since + REFUSED_FOR - Duration::from_nanos(1)));
        assert!(lines.may_look(&names[0], || since + REFUSED_FOR));
        assert!(lines.may_look(&names[0], Instant::now), "it is forgotten");
    }

    #[test]
    fn a_lock_with_two_lines_is_remembered_and_looked_at() {
        let (name, lines) = (LockName::new("a").unwrap(), TwoLines::default());
        lines.seen(&name, 0);
        assert!(lines.warned.lock().is_empty());
        lines.seen(&name, 1);
        assert!(lines.warned.lock().contains(&name) && lines.may_look(&name, Instant::now));
    }

    #[test]
    fn where_many_are_refused_none_is_looked_at() {
        let lines = TwoLines::default();
        (0..2 * MOST_REFUSED).for_each(|n| lines.seen(&LockName::new(&n.to_string()).unwrap(), 2));
        assert!(!lines.may_look(&LockName::new("another").unwrap(), Instant::now));
        assert_eq!(lines.refused.lock().len(), MOST_REFUSED);
    }
}
