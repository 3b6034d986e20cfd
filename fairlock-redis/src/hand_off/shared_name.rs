//! Logs a warning if clients of both disciplines wait for one name.
//!
//! A queued waiter is told that a hold of another discipline has the lock. The hold may be of Redisson's plain lock, whose waiters get
//! the lock when our queue is empty. But Redisson's fair lock has its own queue, and the two queues have no common order. So the client
//! looks whether there is such a queue, outside of the scripts, which do not need to know.
//!
//! The look is for the log alone. If the user lacks the right to the key, or there is no answer, nothing follows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fairlock_core::LockName;
use fairlock_core::backend::LockId;
use parking_lot::Mutex;
use redis::{Value, cmd};

use crate::shared::Shared;

/// How long a name is left alone: a look without the right to the key is an entry in the server's ACL LOG.
const ONCE_IN: Duration = Duration::from_secs(3600);
/// The least time between two looks. So a silent server delays the thread, which may be the watchdog, by one response time-out at
/// most; and at most sixty names are remembered.
const ANY_ONCE_IN: Duration = Duration::from_secs(60);

/// The names that were looked for in the last hour.
#[derive(Default)]
pub(super) struct SharedNames(Mutex<HashMap<LockName, Instant>>);

impl SharedNames {
    /// A reply said that a hold of another discipline has this lock. If it is time, looks whether clients of that discipline wait, too.
    pub(super) fn seen_foreign(&self, shared: &Shared, lock: &LockId) {
        if self.is_due(&lock.name, Instant::now()) && has_queue(shared, lock) {
            log::warn!(
                target: "fairlock::acquire",
                event = "two disciplines", lock = lock.name.as_str();
                "lock {}: clients wait for it in Redisson's queue (discipline `Redisson`) and in ours (`HandOff`); there is no order \
                 between the two, and theirs gets the lock only when ours is empty: choose one discipline for all clients of a lock",
                lock.name
            );
        }
    }

    /// Whether to look now. If so, the look counts as done.
    fn is_due(&self, lock: &LockName, now: Instant) -> bool {
        let mut looked = self.0.lock();
        looked.retain(|_, at| now.saturating_duration_since(*at) < ONCE_IN);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < ANY_ONCE_IN;
        let is_due = !looked.contains_key(lock) && !looked.values().any(is_recent);
        if is_due {
            looked.insert(lock.clone(), now);
        }
        is_due
    }
}

fn has_queue(shared: &Shared, lock: &LockId) -> bool {
    let Ok(keys) = shared.keys(lock) else { return false };
    let question = cmd("EXISTS").arg(keys.queue()).get_packed_command();
    let answer = shared.servers.call(keys.lock(), |route| route.call(&question));
    answer.is_ok_and(|answer| answer == Value::Int(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_once_an_hour_and_any_once_a_minute() {
        let names = ["a", "b"].map(|name| LockName::new(name).unwrap());
        let (shared, start) = (SharedNames::default(), Instant::now());
        let is_due = |name: usize, seconds| shared.is_due(&names[name], start + Duration::from_secs(seconds));
        assert!(is_due(0, 0));
        assert!(!is_due(0, 0) && !is_due(1, 59));
        assert!(is_due(1, 60));
        assert!(!is_due(0, 3599));
        assert!(is_due(0, 3600));
        assert!(!is_due(1, 3659) && is_due(1, 3660));
    }

    #[test]
    fn only_the_names_of_an_hour_are_remembered() {
        let (shared, start) = (SharedNames::default(), Instant::now());
        for second in 0..20_000 {
            let name = LockName::new(&second.to_string()).unwrap();
            shared.is_due(&name, start + Duration::from_secs(second));
        }
        assert_eq!(shared.0.lock().len(), 60);
    }
}
