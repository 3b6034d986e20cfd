//! What all operations of a backend share: its servers, its settings, and which rules a lock follows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, LockId, Place, Wait};
use redis::{Value, cmd};

use crate::kept_keys::KeptKeys;
use crate::keys::{Keys, life_of_slot};
use crate::net::commands::{PoolSettings, beside};
use crate::net::topology::Topology;
use crate::resp::millis;
use crate::settings::{Discipline, Settings};
use crate::two_lines::TwoLines;
use crate::wake_ups::WakeUps;

/// Keeps locks on a Redis (or Valkey) server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct RedisBackend(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) servers: Arc<Topology>,
    pub(crate) pools: PoolSettings,
    pub(crate) settings: Settings,
    pub(crate) wake_ups: WakeUps,
    pub(crate) two_lines: TwoLines,
    kept_keys: KeptKeys,
    /// Whether a renewal has told a count other than one, which a grant has. Before, no renewal has to look at the counts.
    tells_counts: AtomicBool,
}

/// The rules that a lock follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rules {
    /// Our own line, for locks of any capacity.
    Line,
    Redisson,
    Plain,
}

impl RedisBackend {
    pub(crate) fn new(servers: Topology, pools: PoolSettings, settings: Settings) -> RedisBackend {
        let servers = Arc::new(servers);
        let wake_ups = WakeUps::new(Arc::clone(&servers), &settings);
        let (two_lines, kept_keys) = (TwoLines::default(), KeptKeys::default());
        let tells_counts = AtomicBool::new(false);
        let inner = Inner { servers, pools, settings, wake_ups, two_lines, kept_keys, tells_counts };
        RedisBackend(Arc::new(inner))
    }
}

impl RedisBackend {
    /// What is left of the grace, as far as this client's calls have been told: until then its server grants no lock, and an
    /// attempt that does not wait finds each lock busy. None without [`durable`](crate::RedisBuilder::durable), before the first
    /// call, and when the grace is over. Asks nothing.
    ///
    /// ```no_run
    /// # use fairlock_redis::{Durability, RedisBackend};
    /// let backend = RedisBackend::builder("redis://localhost").durable(Durability::life()).connect()?;
    /// // … an attempt found the lock busy
    /// if let Some(left) = backend.grace_left() {
    ///     println!("the server has a new past, try again in {left:.1?}");
    /// }
    /// # Ok::<(), fairlock_core::backend::BackendError>(())
    /// ```
    pub fn grace_left(&self) -> Option<Duration> {
        self.0.pools.graces.left()
    }
}

impl Inner {
    pub(crate) fn rules(&self, lock: &LockId) -> Rules {
        match (lock.kind, self.settings.discipline) {
            (LockKind::Plain, _) => Rules::Plain,
            (_, Discipline::Redisson) => Rules::Redisson,
            (_, Discipline::HandOff) => Rules::Line,
        }
    }

    /// In a cluster a client looks for durable ones at the node that keeps the first slot, and a durable one sees to it that there is
    /// something to see: a life without a past, which begins as any other. A failure only means that it can't be known.
    pub(crate) fn meet_in_the_first_slot(&self) {
        let (life, question) = (life_of_slot(0), beside::question(true).get_packed_command());
        let ask = |packed: &[u8]| self.servers.ask(&life, |route| route.call(packed));
        let Ok(grace) = ask(&question) else { return };
        match &self.settings.durability {
            None => self.pools.beside.heard(&grace),
            Some(durability) if grace == Value::Nil => {
                let grace = millis(durability.grace());
                let _ = ask(&cmd("HSET").arg(&life).arg("grace").arg(grace).get_packed_command());
            }
            Some(_) => {}
        }
    }

    /// By which rules the lock is looked at: a plain handle, too, shows the line of this backend's fair locks.
    pub(crate) fn rules_of_line(&self, lock: &LockId) -> Rules {
        match (self.rules(lock), self.settings.discipline) {
            (Rules::Plain, Discipline::HandOff) => Rules::Line,
            (rules, _) => rules,
        }
    }

    /// # Errors
    /// As [`Keys::of`].
    pub(crate) fn keys(&self, lock: &LockId) -> Result<Arc<Keys>, BackendError> {
        self.kept_keys.of(lock)
    }

    /// Whether a renewal by the hand-off's rules has to tell this count: the server may have another one.
    pub(crate) fn tells_count(&self, count: u32) -> bool {
        if count != 1 {
            self.tells_counts.store(true, Ordering::Relaxed);
        }
        self.tells_counts.load(Ordering::Relaxed)
    }

    /// How long a place lasts by Redisson's rule: as long as its caller waits, or the thread wait.
    pub(crate) fn time_of_place(&self, place: &Place<'_>) -> Duration {
        match place.wait {
            Wait::UpTo(time) => time,
            _ => self.settings.thread_wait,
        }
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend").field("servers", &self.0.servers.to_string()).finish_non_exhaustive()
    }
}
