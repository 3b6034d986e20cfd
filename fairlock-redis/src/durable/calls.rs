//! The scripts of the locks with a queue: wrapped in their life for a durable client, and refused to another one beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquire, BackendError, BackendErrorKind};
use redis::{Cmd, Value, cmd};

use super::durability::Durability;
use super::graces::Graces;
use super::lives::{LIFE, key_of_slot, wrapped};
use super::peers::DurablePeers;
use crate::checks::invalid;
use crate::net::hash_slot::of_name;
use crate::net::{Failure, Meaning, Pool, Servers, Settings};
use crate::script::arguments::millis;
use crate::script::keys::Keys;
use crate::script::run::{Call, ReplyHook, Wrapper};

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
    pub(crate) fn check(&self, ask: &Acquire<'_>, servers: &Servers) -> Result<(), BackendError> {
        match (&self.0, ask.place.lock.kind) {
            (Role::Durable(_), LockKind::Plain) => {
                let what = "a durable backend has fair locks only: a plain lock may be shared with Redisson, which grants it in \
                            the grace";
                Err(invalid(what.to_owned()))
            }
            (Role::Durable(wrapping), _) => wrapping.durability.check_lease(ask.lease),
            (Role::NotDurable(_), LockKind::Plain) | (Role::NoQueues, _) => Ok(()),
            (Role::NotDurable(peers), _) => peers.check(Some(servers)),
        }
    }

    /// The call as this client makes it.
    pub(crate) fn wrap<'a>(&self, call: Call<'a>) -> Call<'a> {
        let Some(wrapping) = self.wrapping() else { return call };
        let wrapper = Wrapper {
            text: wrapped(call.script()),
            key: wrapping.life_of(call.keys()),
            arguments: wrapping.durability.arguments(),
            shows_proof: wrapping.durability.asks_quorum(),
            hook: Arc::clone(wrapping) as _,
        };
        call.wrapped(wrapper)
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
        let life = super::peers::life(of_slots);
        let ask = |command: &Cmd| servers.call(&life, |route| route.call(&command.get_packed_command()));
        match &self.0 {
            // Outside a cluster the greeting has answered this.
            Role::NotDurable(peers) if of_slots => {
                if let Ok(grace) = ask(&super::peers::question(&life)) {
                    peers.heard(&grace, Instant::now());
                }
            }
            Role::Durable(wrapping) => {
                let is_first = ask(&super::peers::question(&life)).is_ok_and(|grace| grace == Value::Nil);
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
        let life = &*wrapping.life_of(keys);
        let needed = [&["INFO", "replication"][..], &["HMGET", life, "a"], &["HSET", life, "a", "1"]];
        needed.map(|words| words.iter().map(|word| (*word).to_owned()).collect()).to_vec()
    }
}

impl Wrapping {
    /// The key of the life that decides over a lock with these keys. A name that has no slot is refused before anything is sent.
    fn life_of(&self, keys: &Keys) -> String {
        match self.graces.of_slots {
            true => key_of_slot(of_name(keys.lock()).unwrap_or(0)),
            false => LIFE.to_owned(),
        }
    }

    /// The slot is moving to another node: some of its keys may be gone, with their holds. If the move is broken off, the node
    /// that keeps the slot must not count as a server that knows all holds. So the slot's life ends as soon as a durable client
    /// learns of the move, and no script begins a new life before the move is over, since some of the script's keys are missing.
    /// (A late deletion costs a grace.)
    fn end_life_of_open_slot(&self, node: &Pool, lock: &str, failure: &Failure) {
        let is_open = matches!(failure.code(), Some("ASK" | "TRYAGAIN"));
        if let (true, true, Some(slot)) = (self.graces.of_slots, is_open, of_name(lock)) {
            let _ = node.call(cmd("DEL").arg(key_of_slot(slot)).get_packed_command());
        }
    }
}

impl ReplyHook for Wrapping {
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

#[cfg(test)]
mod tests;
