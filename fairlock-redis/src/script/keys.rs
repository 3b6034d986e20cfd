//! The names of all keys and channels, and a cache of those in use.
//!
//! | what | name without a brace | name with `{` |
//! | --- | --- | --- |
//! | lock (hash) | `orders` | `a{b}` |
//! | queue (list, shared with Redisson) | `redisson_lock_queue:{orders}` | `redisson_lock_queue:a{b}` |
//! | timeouts (sorted set, shared) | `redisson_lock_timeout:{orders}` | `redisson_lock_timeout:a{b}` |
//! | waiters: our queue (sorted set) | `fairlock_queue:{orders}` | `fairlock_queue_raw:a{b}` |
//! | record (hash, ours): sequence, queue clock, places | `fairlock_record:{orders}` | `fairlock_record_raw:a{b}` |
//! | ends of holds that take a part (sorted set, ours) | `fairlock_ends:{orders}` | `fairlock_ends_raw:a{b}` |
//! | channel (shared) | `redisson_lock__channel:{orders}` | `redisson_lock__channel:a{b}` |
//! | channel of a fair waiter (shared) | the same, `:` and the owner | |
//! | channel of a client (ours) | `fairlock:<client uuid>` | |
//! | life of the server (hash, ours) | `fairlock_life` | |
//! | in a cluster, of the lock's hash slot | `fairlock_life:{<tag>}` | |
//!
//! Redisson's rule gives the locks `a` and `{a}` one queue; the rule for our own keys keeps them apart. All keys of a
//! lock have one hash slot, unless the braces in its name don't pair: a cluster cannot keep such a lock.

use std::fmt;
use std::sync::Arc;

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, BackendErrorKind, LockId};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

/// The prefix of a client's channel; the client's UUID follows.
const CLIENT_CHANNEL_PREFIX: &str = "fairlock:";

/// Prefixes of keys that belong to other locks. A lock with such a name would overwrite them.
const TAKEN: [&str; 6] = [
    "fairlock_queue",
    "fairlock_record",
    "fairlock_ends",
    "fairlock_life",
    "redisson_lock_queue",
    "redisson_lock_timeout",
];

/// The keys of one lock and its channel, spelled once.
#[derive(Debug)]
pub(crate) struct Keys {
    /// One after the other, and where each ends: one allocation, since a lock that is seldom used is spelled for each use.
    texts: String,
    ends: [usize; 7],
    kind: LockKind,
}

/// The keys of a script, in their order.
pub(crate) type KeysOfScript<'k> = SmallVec<[&'k str; 4]>;

impl Keys {
    /// # Errors
    /// `InvalidName` for a name that is a key of another lock.
    pub(crate) fn of(lock: &LockId) -> Result<Keys, BackendError> {
        let name = lock.name.as_str();
        if let Some(prefix) = TAKEN.iter().find(|prefix| name.starts_with(**prefix)) {
            let reason = format!("names that begin with {prefix} are keys of other locks");
            return Err(BackendError::new(BackendErrorKind::InvalidName, reason));
        }
        // Redisson's rule for the shared keys. Our own keys have the same slot, and no two names have one key.
        let [raw, before, after] = if name.contains('{') { ["_raw", ":", ""] } else { ["", ":{", "}"] };
        let mut texts = String::with_capacity(7 * (name.len() + 25));
        let ends = [
            [name, "", "", "", ""],
            ["fairlock_queue", raw, before, name, after],
            ["fairlock_record", raw, before, name, after],
            ["fairlock_ends", raw, before, name, after],
            ["redisson_lock_queue", "", before, name, after],
            ["redisson_lock_timeout", "", before, name, after],
            ["redisson_lock__channel", "", before, name, after],
        ]
        .map(|parts| {
            texts.extend(parts);
            texts.len()
        });
        Ok(Keys { texts, ends, kind: lock.kind })
    }

    fn at(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[start..self.ends[index]]
    }

    /// The lock's own key, which is its name.
    pub(crate) fn lock(&self) -> &str {
        self.at(0)
    }

    pub(crate) fn waiters(&self) -> &str {
        self.at(1)
    }

    pub(crate) fn record(&self) -> &str {
        self.at(2)
    }

    pub(crate) fn ends(&self) -> &str {
        self.at(3)
    }

    pub(crate) fn queue(&self) -> &str {
        self.at(4)
    }

    pub(crate) fn timeouts(&self) -> &str {
        self.at(5)
    }

    /// The channel on which the release of a plain lock is published.
    pub(crate) fn channel(&self) -> &str {
        self.at(6)
    }

    /// The kind that was asked for.
    pub(crate) fn kind(&self) -> LockKind {
        self.kind
    }

    /// Whether these are the keys of such a lock.
    fn are_of(&self, lock: &LockId) -> bool {
        self.kind == lock.kind && self.lock() == lock.name.as_str()
    }

    /// Whether a hold may take a part of the lock's units.
    fn has_parts(&self) -> bool {
        self.kind.capacity() > 1
    }

    /// All keys, and the type of each, as TYPE names it.
    pub(crate) fn typed(&self) -> [(&str, &str); 6] {
        [
            (self.lock(), "hash"),
            (self.queue(), "list"),
            (self.timeouts(), "zset"),
            (self.waiters(), "zset"),
            (self.record(), "hash"),
            (self.ends(), "zset"),
        ]
    }

    /// The keys of the scripts in `hand_off/`, in their order. A lock of one unit has no parts, and so no ends.
    pub(crate) fn of_queue(&self) -> KeysOfScript<'_> {
        match self.has_parts() {
            false => smallvec![self.lock(), self.waiters(), self.record()],
            true => smallvec![self.lock(), self.waiters(), self.record(), self.ends()],
        }
    }

    /// The keys of the script that shows Redisson's queue, in their order.
    #[cfg(any(feature = "redisson", test))]
    pub(crate) fn redisson(&self) -> KeysOfScript<'_> {
        smallvec![self.lock(), self.record(), self.queue(), self.timeouts()]
    }

    /// The keys of the other scripts in `redisson/`, in their order. A plain lock has no queue.
    #[cfg(any(feature = "redisson", test))]
    pub(crate) fn in_redisson(&self) -> KeysOfScript<'_> {
        if self.kind == LockKind::Plain { self.without_queue() } else { self.redisson() }
    }

    /// The keys of a hold by these scripts.
    #[cfg(any(feature = "redisson", test))]
    pub(crate) fn without_queue(&self) -> KeysOfScript<'_> {
        smallvec![self.lock(), self.record()]
    }

    /// The keys of a hold, for the script that touches holds alone.
    pub(crate) fn of_hold(&self) -> KeysOfScript<'_> {
        if self.has_parts() { smallvec![self.lock(), self.ends()] } else { smallvec![self.lock()] }
    }
}

/// Patterns for SCAN's MATCH that find the queues, and the ends of holds that take a part, of locks whose name matches `pattern`.
pub(crate) fn queues(pattern: &str) -> [String; 4] {
    [
        format!("fairlock_queue:{{{pattern}}}"),
        format!("fairlock_queue_raw:{pattern}"),
        format!("fairlock_ends:{{{pattern}}}"),
        format!("fairlock_ends_raw:{pattern}"),
    ]
}

/// The patterns for Redisson's queues.
#[cfg(any(feature = "redisson", test))]
pub(crate) fn redisson_queues(pattern: &str) -> [String; 2] {
    [format!("redisson_lock_queue:{{{pattern}}}"), format!("redisson_lock_queue:{pattern}")]
}

/// The name of the lock that this queue, set of ends, or queue of Redisson's belongs to.
pub(crate) fn name_of_queue(key: &str) -> Option<&str> {
    let after = |prefixes: &[&str]| prefixes.iter().find_map(|prefix| key.strip_prefix(prefix));
    if let Some(name) = after(&["fairlock_queue_raw:", "fairlock_ends_raw:"]) {
        return Some(name);
    }
    let rest = after(&["fairlock_queue:", "fairlock_ends:", "redisson_lock_queue:"])?;
    let inner = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    // A name with a brace was written without further braces.
    Some(inner.filter(|inner| !inner.contains('{')).unwrap_or(rest))
}

/// The channel of a client.
pub(crate) fn client_channel(client: impl fmt::Display) -> String {
    format!("{CLIENT_CHANNEL_PREFIX}{client}")
}

/// How many locks' keys are kept: some hundred bytes each, and at most four kilobytes.
const SLOTS: usize = 1024;

/// A lock's name decides its slot, and the latest lock of a slot stays there. So nothing has to be evicted, threads with
/// different locks hardly ever meet at a mutex, and among many more locks than slots it costs no more than no cache: some
/// allocations for each use.
pub(crate) struct KeyCache {
    slots: Box<[Mutex<Option<Arc<Keys>>>]>,
}

impl Default for KeyCache {
    fn default() -> KeyCache {
        KeyCache { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }
}

impl KeyCache {
    /// # Errors
    /// As [`Keys::of`].
    pub(crate) fn of(&self, lock: &LockId) -> Result<Arc<Keys>, BackendError> {
        let slot = usize::try_from(lock.name.hash_code() % SLOTS as u64).unwrap_or(0);
        let mut kept = self.slots[slot].lock();
        match &*kept {
            Some(keys) if keys.are_of(lock) => Ok(Arc::clone(keys)),
            _ => Ok(Arc::clone(kept.insert(Arc::new(Keys::of(lock)?)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_backend::named;
    use fairlock_core::{LockKind, LockName};

    fn id(name: &str) -> LockId {
        named(name, LockKind::Fair)
    }

    #[test]
    fn shared_keys_are_spelled_as_redisson_spells_them() {
        let keys = Keys::of(&id("myLock")).unwrap();
        assert_eq!(keys.lock(), "myLock");
        assert_eq!(keys.queue(), "redisson_lock_queue:{myLock}");
        assert_eq!(keys.timeouts(), "redisson_lock_timeout:{myLock}");
        assert_eq!(keys.channel(), "redisson_lock__channel:{myLock}");
        assert_eq!(Keys::of(&id("a:{t}:b")).unwrap().queue(), "redisson_lock_queue:a:{t}:b");
    }

    #[test]
    fn each_rule_has_its_keys_in_order() {
        let lock = named("a", LockKind::ReadWrite);
        let (keys, with_ends) = (Keys::of(&id("a")).unwrap(), Keys::of(&lock).unwrap());
        let texts = |keys: KeysOfScript<'_>| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let [queue, record, ends] = ["fairlock_queue:{a}", "fairlock_record:{a}", "fairlock_ends:{a}"];
        assert_eq!(texts(keys.of_queue()), ["a", queue, record]);
        assert_eq!(texts(with_ends.of_queue()), ["a", queue, record, ends]);
        assert_eq!(
            texts(keys.redisson()),
            ["a", record, "redisson_lock_queue:{a}", "redisson_lock_timeout:{a}"]
        );
        let plain = named("a", LockKind::Plain);
        assert_eq!(texts(Keys::of(&plain).unwrap().in_redisson()), ["a", record]);
        assert_eq!(texts(keys.in_redisson()), texts(keys.redisson()));
        assert!(keys.are_of(&id("a")) && !keys.are_of(&plain));
        assert_eq!(texts(keys.without_queue()), ["a", record]);
        assert_eq!(
            (texts(keys.of_hold()), texts(with_ends.of_hold())),
            (vec!["a".into()], vec!["a".into(), ends.into()])
        );
        let mut all = [texts(with_ends.of_queue()), texts(keys.redisson())].concat();
        all.sort();
        all.dedup();
        let mut typed = keys.typed().map(|(key, _)| key);
        typed.sort_unstable();
        assert_eq!(typed.as_slice(), all);
    }

    #[test]
    fn patterns_find_the_queues_of_a_lock() {
        for name in ["a", "a:{t}:b"] {
            let keys = Keys::of(&id(name)).unwrap();
            let is_in = |patterns: &[String], key: &str| patterns.iter().any(|pattern| pattern == key);
            assert!(is_in(&queues(name), keys.waiters()) && is_in(&queues(name), keys.ends()));
            assert!(is_in(&redisson_queues(name), keys.queue()));
        }
    }

    #[test]
    fn a_client_has_a_channel() {
        let client = fairlock_core::ClientId::random();
        assert_eq!(client_channel(client), format!("fairlock:{client}"));
    }

    #[test]
    fn the_name_of_a_lock_can_be_read_from_its_queues() {
        for name in ["a", "a:{t}:b", "{a}", "a b", "a}"] {
            let keys = Keys::of(&id(name)).unwrap();
            assert_eq!(name_of_queue(keys.waiters()), Some(name));
            assert_eq!(name_of_queue(keys.ends()), Some(name));
            // Redisson gives `a` and `{a}` one queue.
            assert_eq!(name_of_queue(keys.queue()), Some(if name == "{a}" { "a" } else { name }));
        }
        assert_eq!(name_of_queue("fairlock_record:{a}"), None);
    }

    #[test]
    fn own_keys_keep_a_name_and_the_same_name_in_braces_apart() {
        let names = ["a", "{a}", "{{a}}", "a}", "{a"];
        let keys = names.map(|name| Keys::of(&id(name)).unwrap());
        let spelled = keys.iter().flat_map(|keys| [keys.waiters(), keys.record(), keys.ends()]);
        assert_eq!(spelled.collect::<std::collections::HashSet<_>>().len(), 3 * names.len());
    }

    #[test]
    fn a_name_that_is_another_locks_key_is_refused() {
        let error = Keys::of(&id("redisson_lock_queue:{x}")).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::InvalidName);
        assert_eq!(error.to_string(), "names that begin with redisson_lock_queue are keys of other locks");
    }

    fn of(kept: &KeyCache, name: &str) -> Result<Arc<Keys>, BackendError> {
        kept.of(&LockId::new(LockName::new(name).unwrap(), LockKind::Fair))
    }

    /// A lock in use is spelled once, and no lock gets the keys of another lock.
    #[test]
    fn a_lock_in_use_is_spelled_once_and_keeps_its_keys() {
        let kept = KeyCache::default();
        assert!(Arc::ptr_eq(&of(&kept, "a").unwrap(), &of(&kept, "a").unwrap()));
        for round in 0..2 {
            for n in 0..3 * SLOTS {
                let name = format!("lock:{n}");
                assert_eq!(of(&kept, &name).unwrap().lock(), name, "round {round}");
            }
        }
        assert!(kept.slots.iter().filter(|slot| slot.lock().is_some()).count() > SLOTS / 2);
        assert!(of(&kept, "fairlock_queue:{a}").is_err());
    }
}

#[cfg(feature = "servers")]
#[cfg(test)]
mod on_a_server {
    use super::*;
    use crate::fake_backend::named;
    use crate::net::slot_of;
    use crate::net::test_server::TestServer;
    use fairlock_core::LockKind;
    use redis::Value;

    /// The server agrees on the slots, and on the names that have no slot.
    #[test]
    fn the_server_agrees_on_slots_and_names_without_a_slot() {
        let server = TestServer::start_with(&["--cluster-enabled", "yes"]);
        let slot = |key: &str| match server.command(&["CLUSTER", "KEYSLOT", key]) {
            Value::Int(slot) => u16::try_from(slot).expect("a slot"),
            other => panic!("{other:?}"),
        };
        for name in [
            "orders", "a b", "müller", "{a}", "a{b}c", "{a}{b}", "{{a}}", "{a", "a}", "}", "{", "{}", "{}a",
            "a{}b", "}{", "}{a}", "a{}{b}", "a}b{c}", "{a}}",
        ] {
            let keys = Keys::of(&named(name, LockKind::Fair)).expect(name);
            let slots = keys.typed().map(|(key, _)| slot(key));
            let same = slots.iter().all(|slot| *slot == slots[0]);
            assert_eq!(slot_of(name), same.then_some(slots[0]), "{name}");
        }
    }
}
