//! The names of all keys and channels.
//!
//! | what | name without a brace | name with `{` |
//! | --- | --- | --- |
//! | lock (hash) | `orders` | `a{b}` |
//! | queue (list, shared with Redisson) | `redisson_lock_queue:{orders}` | `redisson_lock_queue:a{b}` |
//! | timeouts (sorted set, shared) | `redisson_lock_timeout:{orders}` | `redisson_lock_timeout:a{b}` |
//! | line (sorted set, ours) | `fairlock_queue:{orders}` | `fairlock_queue_raw:a{b}` |
//! | places (hash, ours) | `fairlock_places:{orders}` | `fairlock_places_raw:a{b}` |
//! | token (hash, ours) | `fairlock_token:{orders}` | `fairlock_token_raw:a{b}` |
//! | channel (shared) | `redisson_lock__channel:{orders}` | `redisson_lock__channel:a{b}` |
//! | channel of a fair waiter (shared) | the same, `:` and the owner | |
//! | channel of a client (ours) | `fairlock:<client uuid>` | |
//!
//! Redisson's rule gives the locks `a` and `{a}` one queue; the rule for our own keys keeps them apart. All keys of a
//! lock have one hash slot, unless the braces in its name don't pair: a cluster cannot keep such a lock.

use fairlock_core::ClientId;
use fairlock_core::backend::{BackendError, BackendErrorKind, LockId};

/// The prefix of a client's channel; the client's UUID follows.
pub(crate) const CLIENT_CHANNEL_PREFIX: &str = "fairlock:";

/// Prefixes of keys that belong to other locks. A lock with such a name would overwrite them.
const TAKEN: [&str; 5] =
    ["fairlock_queue", "fairlock_places", "fairlock_token", "redisson_lock_queue", "redisson_lock_timeout"];

/// The keys of one lock.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    pub(crate) queue: String,
    pub(crate) timeouts: String,
    pub(crate) line: String,
    pub(crate) places: String,
    pub(crate) token: String,
}

impl Keys {
    /// # Errors
    /// `InvalidName` for a name that is a key of another lock.
    pub(crate) fn of(lock: &LockId) -> Result<Keys, BackendError> {
        let name = lock.name.as_str();
        if let Some(prefix) = TAKEN.iter().find(|prefix| name.starts_with(**prefix)) {
            let reason = format!("names that begin with {prefix} are keys of other locks");
            return Err(BackendError::new(BackendErrorKind::InvalidName, reason));
        }
        Ok(Keys {
            lock: name.to_owned(),
            queue: shared("redisson_lock_queue", name),
            timeouts: shared("redisson_lock_timeout", name),
            line: own("fairlock_queue", name),
            places: own("fairlock_places", name),
            token: own("fairlock_token", name),
        })
    }

    /// All keys, and the type of each, as TYPE names it.
    pub(crate) fn typed(&self) -> [(&str, &str); 6] {
        [
            (&self.lock, "hash"),
            (&self.queue, "list"),
            (&self.timeouts, "zset"),
            (&self.line, "zset"),
            (&self.places, "hash"),
            (&self.token, "hash"),
        ]
    }

    /// The keys of the hand-off's scripts, in their order.
    pub(crate) fn hand_off(&self) -> Vec<&str> {
        vec![&self.lock, &self.line, &self.places, &self.token]
    }

    /// The keys of the scripts for Redisson's line, in their order.
    pub(crate) fn redisson(&self) -> Vec<&str> {
        vec![&self.lock, &self.queue, &self.timeouts, &self.token]
    }

    /// The keys of the scripts that use no line, in their order.
    pub(crate) fn without_line(&self) -> Vec<&str> {
        vec![&self.lock, &self.token]
    }

    /// The key of the script that touches the hold alone.
    pub(crate) fn only_lock(&self) -> Vec<&str> {
        vec![&self.lock]
    }
}

/// Patterns for SCAN's MATCH that find the hand-off's lines of locks whose name matches `pattern`.
pub(crate) fn lines(pattern: &str) -> [String; 2] {
    [format!("fairlock_queue:{{{pattern}}}"), format!("fairlock_queue_raw:{pattern}")]
}

/// The same for Redisson's queues.
pub(crate) fn queues(pattern: &str) -> [String; 2] {
    [format!("redisson_lock_queue:{{{pattern}}}"), format!("redisson_lock_queue:{pattern}")]
}

/// The name of the lock that this line, or Redisson's queue, belongs to.
pub(crate) fn name_of_line(key: &str) -> Option<&str> {
    if let Some(name) = key.strip_prefix("fairlock_queue_raw:") {
        return Some(name);
    }
    let rest = key.strip_prefix("fairlock_queue:").or_else(|| key.strip_prefix("redisson_lock_queue:"))?;
    let inner = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    // A name with a brace was written without further braces.
    Some(inner.filter(|inner| !inner.contains('{')).unwrap_or(rest))
}

/// The channel on which the release of a plain lock is published, and the prefix of its fair waiters' channels.
pub(crate) fn lock_channel(lock: &LockId) -> String {
    shared("redisson_lock__channel", lock.name.as_str())
}

/// The channel of one waiter in Redisson's line.
pub(crate) fn waiter_channel(lock: &LockId, owner: &str) -> String {
    format!("{}:{owner}", lock_channel(lock))
}

/// The channel of a client.
pub(crate) fn client_channel(client: ClientId) -> String {
    format!("{CLIENT_CHANNEL_PREFIX}{client}")
}

/// Redisson's rule.
fn shared(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// Our rule: the same slot, and no two names have one key.
fn own(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}_raw:{name}") } else { format!("{prefix}:{{{name}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_core::{LockKind, LockName};

    fn id(name: &str) -> LockId {
        LockId::new(LockName::new(name).unwrap(), LockKind::Fair)
    }

    #[test]
    fn shared_keys_are_spelled_as_redisson_spells_them() {
        let keys = Keys::of(&id("myLock")).unwrap();
        assert_eq!(keys.lock, "myLock");
        assert_eq!(keys.queue, "redisson_lock_queue:{myLock}");
        assert_eq!(keys.timeouts, "redisson_lock_timeout:{myLock}");
        assert_eq!(waiter_channel(&id("order"), "u:57"), "redisson_lock__channel:{order}:u:57");
        assert_eq!(Keys::of(&id("a:{t}:b")).unwrap().queue, "redisson_lock_queue:a:{t}:b");
    }

    #[test]
    fn the_name_of_a_lock_can_be_read_from_its_lines() {
        for name in ["a", "a:{t}:b", "{a}", "a b", "a}"] {
            let keys = Keys::of(&id(name)).unwrap();
            assert_eq!(name_of_line(&keys.line), Some(name));
            // Redisson gives `a` and `{a}` one queue.
            assert_eq!(name_of_line(&keys.queue), Some(if name == "{a}" { "a" } else { name }));
        }
        assert_eq!(name_of_line("fairlock_token:{a}"), None);
    }

    #[test]
    fn own_keys_keep_a_name_and_the_same_name_in_braces_apart() {
        let names = ["a", "{a}", "{{a}}", "a}", "{a"];
        let keys: std::collections::HashSet<_> = names
            .iter()
            .map(|name| Keys::of(&id(name)).unwrap())
            .flat_map(|keys| [keys.line, keys.places, keys.token])
            .collect();
        assert_eq!(keys.len(), 3 * names.len());
    }

    #[test]
    fn a_name_that_is_another_locks_key_is_refused() {
        let error = Keys::of(&id("redisson_lock_queue:{x}")).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::InvalidName);
        assert_eq!(error.to_string(), "names that begin with redisson_lock_queue are keys of other locks");
    }
}
