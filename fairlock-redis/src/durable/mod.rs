//! Locks that survive a forgetful server, beside locks that don't: one room around scripts and replies.
//!
//! `lives.rs` has what a server tells of its past, and keeps a client that is not durable away from the queues of others that are;
//! `scripts/lib/life.lua` has the rules. Here: the settings, the times that follow from them, and how a client calls scripts, wrapped in
//! their life if the client is durable.

mod lives;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, BackendErrorKind, LockId, in_words};
use redis::{Cmd, Value, cmd};

pub(crate) use lives::lives_of;

use lives::{DurablePeers, Graces, LIFE, key_of_slot, life, question, wrapped};

use crate::net::{
    Arrangement, Failure, MajorityTerms, Meaning, Pool, Servers, Settings, in_range, invalid, slot_of,
};
use crate::script::Wrapper;
use crate::script::scripts::{Keys, Script, Text, millis};

/// How long durable clients believe what a server told them, and how far clocks may differ; see
/// [`RedisBuilder::durable`](crate::RedisBuilder::durable).
///
/// The life of a server is its past. A server that restarts empty or with an old file, is flushed, or is promoted from a replica
/// may have forgotten holds. For one grace it then grants nothing: holders reclaim forgotten holds by their renewals, and
/// waiters get their places back in order. In a cluster each hash slot has its own life, which is new as well when the slot
/// moves to another node.
///
/// Behind sentinels, and in a cluster, a request is only sent to a server that a majority has named within the last quarter of the
/// trust: most sentinels as the master, or most nodes of the cluster, replicas too, as the node that keeps the lock's hash slot.
/// So a master that was deposed and still answers grants nothing that a client believes in once the new master grants locks.
///
/// - **The longest lease** is the trust; with a majority three quarters of it: 7.5 s by default.
/// - **The grace** is the longest lease, with a majority and the trust; 1 % of that, since clocks run at different rates; 2 ms; and
///   the skew. By default 10.6 s, and 18.2 s with a majority.
///
/// ```no_run
/// # use std::time::Duration;
/// # use fairlock_redis::{Durability, RedisBackend};
/// let durability = Durability::default().trust(Duration::from_secs(20));
/// let backend = RedisBackend::builder("redis://localhost").durable(durability).connect()?;
/// # Ok::<(), fairlock_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is for `RedisBuilder::durable`"]
pub struct Durability {
    asks_quorum: bool,
    trust: Duration,
    pub(crate) skew: Duration,
}

impl Default for Durability {
    /// A trust of 10 s, and a skew of 500 ms.
    fn default() -> Durability {
        Durability { asks_quorum: false, trust: Duration::from_secs(10), skew: Duration::from_millis(500) }
    }
}

impl Durability {
    /// The times for clients of these servers: with a majority if there is one to ask.
    pub(crate) fn among(self, servers: Arrangement) -> Durability {
        Durability { asks_quorum: servers != Arrangement::Single, ..self }
    }

    /// Sets how long a client believes an answer of a server; with a majority, from when the client last asked that majority. From 1 s
    /// to 1 h, default 10 s. All clients of a server need the same value.
    pub fn trust(mut self, time: Duration) -> Durability {
        self.trust = time;
        self
    }

    /// Sets by how much the clock of a server may jump, and by how much the clocks of two servers may differ. From 0 to 1 min,
    /// default 500 ms. All clients of a server need the same value.
    pub fn skew(mut self, time: Duration) -> Durability {
        self.skew = time;
        self
    }

    /// The longest lease that a lock can have: the trust, and with a quorum three quarters of it (7.5 s by default).
    pub(crate) fn longest_lease(&self) -> Duration {
        if self.asks_quorum { self.trust - self.proof_age() } else { self.trust }
    }

    /// How long ago a quorum may have been asked when a request is sent.
    fn proof_age(&self) -> Duration {
        self.trust / 4
    }

    /// For how long a server with a new past grants nothing: the longest lease, with a quorum and the trust; 1 % of that, since
    /// clocks run at different rates; 2 ms; and the skew. By default 10.6 s, and 18.2 s with a quorum.
    pub(crate) fn grace(&self) -> Duration {
        let time = if self.asks_quorum { self.longest_lease() + self.trust } else { self.trust };
        time + time / 100 + Duration::from_millis(2) + self.skew
    }

    pub(crate) fn asks_quorum(&self) -> bool {
        self.asks_quorum
    }

    /// How the answers of a quorum count; none if there is none. A voter counts once each proof that it may have been part of
    /// before it started has ended: after the trust, 1 % of that, since clocks run at different rates, the skew, and a second, by
    /// which a time in whole seconds may be too long.
    pub(crate) fn majority_terms(&self) -> Option<MajorityTerms> {
        let least = self.trust + self.trust / 100 + self.skew + Duration::from_secs(1);
        self.asks_quorum.then_some(MajorityTerms { proof_age: self.proof_age(), least_uptime: least })
    }

    /// What the scripts need to know (milliseconds), see `scripts/lib/life.lua`: for how much longer the server keeps a hold than
    /// its holder believes in it, and the grace. With a quorum, a lease and what is kept are a grace: the holder may have reclaimed
    /// its lock at a new master while another client trusts this server, whose clock may jump.
    fn arguments(&self) -> [u64; 2] {
        let grace = millis(self.grace());
        [if self.asks_quorum { grace - millis(self.longest_lease()) } else { 0 }, grace]
    }

    /// # Errors
    /// `InvalidConfig` for a time that is out of range.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        in_range("trust", self.trust, Duration::from_secs(1)..=Duration::from_secs(3600))?;
        in_range("skew", self.skew, Duration::ZERO..=Duration::from_secs(60))
    }

    /// # Errors
    /// `InvalidConfig` for a lease that is longer than the longest.
    fn check_lease(&self, lease: Duration) -> Result<(), BackendError> {
        let longest = self.longest_lease();
        if lease <= longest {
            return Ok(());
        }
        Err(invalid(format!(
            "a lease of {} is longer than {}, the longest with a trust of {}: a server that has forgotten the \
             hold could grant the lock before the lease is over; shorten the lease, or raise `Durability::trust` for all clients",
            in_words(lease),
            in_words(longest),
            in_words(self.trust)
        )))
    }
}

/// What a client is beside durable clients.
pub(crate) struct Calls(Role);

enum Role {
    Durable(Arc<Wrapping>),
    /// The client has to keep away from queues if durable clients are there.
    NotDurable(Arc<DurablePeers>),
    /// The client has no locks that a durable client may have.
    NoQueues,
}

/// What a durable client puts around each script.
struct Wrapping {
    durability: Durability,
    graces: Graces,
    /// Whether no durable client was there before.
    is_first: AtomicBool,
}

impl Calls {
    /// Made before the backend connects, from its settings. `has_queue`: the backend has locks with our own queue, which durable
    /// clients may have as well.
    pub(crate) fn new(
        durability: Option<Durability>,
        of_slots: bool,
        has_queue: bool,
        settings: &mut Settings,
    ) -> Calls {
        let Some(durability) = durability else {
            if !has_queue {
                return Calls(Role::NoQueues);
            }
            let peers = Arc::new(DurablePeers::looking(of_slots));
            settings.greeting = Some(Arc::clone(&peers) as _);
            return Calls(Role::NotDurable(peers));
        };
        settings.majority = durability.majority_terms();
        let graces = Graces::new(of_slots);
        Calls(Role::Durable(Arc::new(Wrapping { durability, graces, is_first: AtomicBool::new(false) })))
    }

    fn wrapping(&self) -> Option<&Arc<Wrapping>> {
        if let Role::Durable(wrapping) = &self.0 { Some(wrapping) } else { None }
    }

    pub(crate) fn durability(&self) -> Option<Durability> {
        self.wrapping().map(|wrapping| wrapping.durability)
    }

    /// # Errors
    /// `InvalidConfig` for a lock that this client must not ask for, or not with this lease.
    pub(crate) fn check(
        &self,
        lock: &LockId,
        lease: Duration,
        servers: &Servers,
    ) -> Result<(), BackendError> {
        match (&self.0, lock.kind) {
            (Role::Durable(_), LockKind::Plain) => {
                let what = "a durable backend has fair locks only: a plain lock may be shared with Redisson, which grants it in \
                            the grace";
                Err(invalid(what.to_owned()))
            }
            (Role::Durable(wrapping), _) => wrapping.durability.check_lease(lease),
            (Role::NotDurable(_), LockKind::Plain) | (Role::NoQueues, _) => Ok(()),
            (Role::NotDurable(peers), _) => peers.check(Some(servers)),
        }
    }

    /// What stands around the scripts of this client.
    pub(crate) fn wrapper(&self) -> Option<Arc<dyn Wrapper>> {
        self.wrapping().map(|wrapping| Arc::clone(wrapping) as _)
    }

    /// Whether forgotten holds are reclaimed, one hold at a time; and for how long before its end an attempt of this length may have been
    /// sent. With a clock that was read before it jumped, no reclaim looks newer than the life.
    pub(crate) fn reclaims(&self, attempt: Duration) -> Option<Duration> {
        self.durability().map(|durability| attempt + durability.skew)
    }

    /// Whether a message may come from a server that another one has replaced.
    pub(crate) fn confirms_messages(&self) -> bool {
        self.durability().is_some_and(|durability| durability.asks_quorum())
    }

    pub(crate) fn longest_lease(&self) -> Option<Duration> {
        self.durability().map(|durability| durability.longest_lease())
    }

    /// The rest of the longest grace that a server has told of.
    pub(crate) fn grace_left(&self) -> Option<Duration> {
        self.wrapping()?.graces.left()
    }

    /// A durable client looks whether another durable client was there before. In a cluster clients look for the key of
    /// the first slot, and a durable client makes the key by beginning a life. After a failure the question stays open.
    pub(crate) fn meet(&self, of_slots: bool, servers: &Servers) {
        let life = life(of_slots);
        let ask = |command: &Cmd| servers.call(&life, |route| route.call(&command.get_packed_command()));
        match &self.0 {
            // Outside a cluster the greeting has answered this.
            Role::NotDurable(peers) if of_slots => {
                if let Ok(grace) = ask(&question(&life)) {
                    peers.heard(&grace, Instant::now());
                }
            }
            Role::Durable(wrapping) => {
                let is_first = ask(&question(&life)).is_ok_and(|grace| grace == Value::Nil);
                wrapping.is_first.store(is_first, Ordering::Relaxed);
                if is_first && of_slots {
                    let grace = millis(wrapping.durability.grace());
                    let _ = ask(cmd("HSET").arg(&life).arg("grace").arg(grace));
                }
            }
            Role::NotDurable(_) | Role::NoQueues => {}
        }
    }

    /// Whether no durable client was there before this one.
    pub(crate) fn is_first(&self) -> bool {
        self.wrapping().is_some_and(|wrapping| wrapping.is_first.load(Ordering::Relaxed))
    }

    /// What an operator has to do before giving up the move of this hash slot.
    pub(crate) fn before_a_move_is_given_up(&self, slot: &str) -> String {
        let life = slot.parse().map(key_of_slot).unwrap_or_default();
        format!("delete the slot's life at the node that keeps it, if clients are `durable`: {life}")
    }

    /// The commands that a durable client needs beside those of its discipline.
    pub(crate) fn needed(&self, keys: &Keys) -> Vec<Vec<String>> {
        let Some(wrapping) = self.wrapping() else { return Vec::new() };
        let life = &*wrapping.key(keys);
        let needed = [&["INFO", "replication"][..], &["HMGET", life, "a"], &["HSET", life, "a", "1"]];
        needed.map(|words| words.iter().map(|word| (*word).to_owned()).collect()).to_vec()
    }
}

impl Wrapping {
    /// The slot is moving to another node: some of its keys may be gone, with their holds. If the move is broken off, the node
    /// that keeps the slot must not count as a server that knows all holds. So the slot's life ends as soon as a durable client
    /// learns of the move, and no script begins a new life before the move is over, since some of the script's keys are missing.
    /// (A late deletion costs a grace.)
    fn end_life_of_open_slot(&self, node: &Pool, lock: &str, failure: &Failure) {
        let is_open = matches!(failure.code(), Some("ASK" | "TRYAGAIN"));
        if let (true, true, Some(slot)) = (self.graces.of_slots, is_open, slot_of(lock)) {
            let _ = node.call(cmd("DEL").arg(key_of_slot(slot)).get_packed_command());
        }
    }
}

impl Wrapper for Wrapping {
    fn text(&self, script: &'static Script) -> &'static Text {
        wrapped(script)
    }

    /// The key of the life that decides over a lock with these keys. A name that has no slot is refused before anything is sent.
    fn key(&self, first: &Keys) -> String {
        match self.graces.of_slots {
            true => key_of_slot(slot_of(first.lock()).unwrap_or(0)),
            false => LIFE.to_owned(),
        }
    }

    fn arguments(&self) -> [u64; 2] {
        self.durability.arguments()
    }

    fn shows_proof(&self) -> bool {
        self.durability.asks_quorum()
    }

    fn heard(&self, server: &Pool, lock: &str, answer: Result<Value, Failure>) -> Result<Value, Failure> {
        match answer {
            Ok(reply) => Ok(self.graces.heard(server.address(), reply)),
            Err(failure) => {
                self.end_life_of_open_slot(server, lock, &failure);
                Err(failure)
            }
        }
    }

    fn meaning(&self, code: &str) -> Option<Meaning> {
        match code {
            "INGRACE" => {
                Some((BackendErrorKind::Unavailable, "the server has a new past, and grants nothing yet", ""))
            }
            "OTHERGRACE" => Some((
                BackendErrorKind::InvalidConfig,
                "other clients of the server have another grace",
                "give all clients of the server the same `Durability`, and `fairlock` the same `--durable`; to change it, stop all \
                 of them, and delete the key `fairlock_life`",
            )),
            "OLDEPOCH" => Some((
                BackendErrorKind::Unavailable,
                "another server was named in between, or the sentinels were set up anew",
                "the sentinels are asked again; if they were set up anew, stop all clients, and begin a new life by `fairlock \
                 doctor --durable --begin-life`",
            )),
            _ => None,
        }
    }
}
