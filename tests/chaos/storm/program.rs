//! What one storm does: clients with their settings, actors with the calls that they make, and the faults; all of it
//! follows from a seed, and can be made smaller.

use std::time::Duration;

use fairlock::admin::LockKind;

use crate::weather::{Fault, Harm};

/// Everything that is left to chance in one run.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    pub clients: Vec<Settings>,
    pub actors: Vec<Actor>,
    /// What each lock is; see [`Program::mixes`].
    pub locks: Vec<LockKind>,
    pub faults: Vec<Fault>,
    pub crowd: Option<Crowd>,
    /// How long a call may take until the backend says that there was no answer.
    pub response: Duration,
}

/// The settings of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub lease: Duration,
    pub place_ttl: Duration,
    pub outage_limit: Duration,
    /// On a real server: how long each of its messages, and each of the server's, is on its way.
    pub distance: Duration,
}

/// A client with hundreds of locks, beside the actors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// How many it has of each: holds, holds among several, and waits.
    pub each: usize,
    /// How far away it is, as [`Settings::distance`].
    pub distance: Duration,
}

/// One thread: what it does, and with which client.
#[derive(Clone, Debug)]
pub struct Actor {
    pub client: usize,
    pub ops: Vec<Op>,
}

/// A call, made when the time has come and the call before it has returned.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub at: Duration,
    pub what: What,
    /// What happens to the first message that the call sends.
    pub hurt: Option<Hurt>,
}

/// A fault of one call alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hurt {
    LosesRequest,
    LosesReply,
    /// It is not answered, and reaches the server so long after it was sent.
    HoldsBack(Duration),
}

/// Which lock is asked for, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub lock: usize,
    pub kind: LockKind,
    /// How many of its units: a writer takes all.
    pub units: u32,
    pub terms: Terms,
    /// One of the owners that all actors of the client share; none for the thread itself, or for an owner of the call's own
    /// where permits are asked for.
    pub owner: Option<usize>,
    /// Asked for as tasks do, by `to_async`: each call is an owner then.
    pub by_task: bool,
    /// The condition of `try_lock` or `try_lock_for` for a fair or plain lock.
    pub unless: Option<Unless>,
}

/// When an ask is declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unless {
    Every(Duration),
    NotWithin(Duration),
    MostWaiting(u32),
}

/// Some of the first eight locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several(pub u8);

/// How long the hold may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    Renewed,
    Fixed(Duration),
    Capped(Duration),
}

/// For how long a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    UpTo(Duration),
    Forever,
}

/// How a guard is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Drop,
    Unlock,
    Leak,
    /// Another client adopts the hold at once.
    HandOver,
}

/// One call of the public interface. Numbers are those of locks and actors, or of the guards, leaks and requests that the actor has then,
/// modulo how many there are, so that a call keeps its meaning when others are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `lock`, `try_lock`, `try_lock_for`; `listens`: takes the channel `lost()` too.
    Take {
        ask: Ask,
        wait: Wait,
        listens: bool,
    },
    /// `with`, `try_with`, `try_with_for`; the closure takes so long. `dropped`: a task drops the future after this time.
    With {
        ask: Ask,
        wait: Wait,
        lasts: Duration,
        dropped: Option<Duration>,
    },
    /// `lead`, for a term that takes so long.
    Lead {
        ask: Ask,
        lasts: Duration,
        dropped: Option<Duration>,
    },
    /// `lock_all`, `try_lock_all`, `try_lock_all_for`.
    TakeAll {
        locks: Several,
        wait: Wait,
        listens: bool,
        by_task: bool,
        dropped: Option<Duration>,
    },
    /// Gives up a guard.
    GiveBack {
        guard: usize,
        end: End,
    },
    /// Gives back a hold that was leaked.
    Unleak(usize),
    Renew(usize),
    /// Waits for the end of a hold that has one, and asks again in that very moment.
    Outlive(usize),
    /// `request`: a place that no caller waits on.
    Request(Ask),
    /// Waits on a request.
    Await {
        request: usize,
        wait: Wait,
    },
    /// Drops a request.
    Withdraw(usize),
    /// Ends the waits of an actor.
    Cancel(usize),
    Force(usize),
    /// `force_unlock_of`: takes one hold of several away.
    ForceOne {
        lock: usize,
        nth: usize,
    },
    Look(usize),
    Shutdown,
    Drain(Duration),
    /// Drops the actor's client, which ends when its last guard and request are dropped.
    DropClient,
    /// Makes a new client in place of the one that was shut down or dropped.
    Restart,
}

impl Program {
    /// How many calls and faults there are.
    pub fn size(&self) -> usize {
        let calls: usize = self.actors.iter().map(|actor| actor.ops.len()).sum();
        self.faults.len() + usize::from(self.crowd.is_some()) + calls
    }

    /// When the last call and the last fault are over, if nothing waits.
    pub fn ends(&self) -> Duration {
        let ops = self.actors.iter().flat_map(|actor| actor.ops.iter().map(|op| op.at));
        let faults = self.faults.iter().map(Fault::end);
        ops.chain(faults).max().unwrap_or_default()
    }

    pub fn longest_ttl(&self) -> Duration {
        self.clients.iter().map(|client| client.place_ttl).max().unwrap_or_default()
    }

    /// Whether messages arrive after their senders have given them up.
    pub fn sends_late(&self) -> bool {
        let mut hurts = self.actors.iter().flat_map(|actor| &actor.ops).filter_map(|op| op.hurt);
        hurts.any(|hurt| matches!(hurt, Hurt::HoldsBack(_)))
            || self.faults.iter().any(|fault| matches!(fault.harm, Harm::HoldBack(_)))
    }

    /// Whether this lock is asked for as two kinds that exclude each other: then calls fail that are right elsewhere.
    pub fn mixes(&self, lock: usize) -> bool {
        self.kinds_of(lock).any(|kind| !kind.agrees_with(self.locks[lock]))
    }

    /// Whether this lock is asked for by several numbers of permits.
    pub fn resizes(&self, lock: usize) -> bool {
        let own = self.locks[lock];
        self.kinds_of(lock).any(|kind| kind.agrees_with(own) && kind.capacity() != own.capacity())
    }

    fn kinds_of(&self, lock: usize) -> impl Iterator<Item = LockKind> {
        self.actors.iter().flat_map(|actor| &actor.ops).filter_map(move |op| op.what.kind_of(lock))
    }

    pub fn longest_lease(&self) -> Duration {
        let fixed = self.actors.iter().flat_map(|actor| &actor.ops).filter_map(|op| op.what.lease());
        self.clients.iter().map(|client| client.lease).chain(fixed).max().unwrap_or_default()
    }
}

impl What {
    /// The length of the fixed lease that is asked for.
    pub fn lease(&self) -> Option<Duration> {
        match self {
            What::Take { ask, .. } | What::With { ask, .. } | What::Lead { ask, .. } | What::Request(ask) => {
                match ask.terms {
                    Terms::Fixed(lease) => Some(lease),
                    Terms::Renewed | Terms::Capped(_) => None,
                }
            }
            _ => None,
        }
    }

    /// As what kind it asks for this lock, if it does.
    fn kind_of(&self, lock: usize) -> Option<LockKind> {
        match self {
            What::Take { ask, .. } | What::With { ask, .. } | What::Lead { ask, .. } | What::Request(ask) => {
                (ask.lock == lock).then_some(ask.kind)
            }
            What::TakeAll { locks, .. } => locks.iter().any(|other| other == lock).then_some(LockKind::Fair),
            _ => None,
        }
    }
}

impl Ask {
    /// Whether each call is its own owner.
    pub fn is_anonymous(&self) -> bool {
        self.owner.is_none() && (self.by_task || matches!(self.kind, LockKind::Semaphore { .. }))
    }

    pub fn writes(&self) -> bool {
        self.units > 1
    }
}

impl Several {
    pub fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..8).filter(move |lock| self.0 & 1 << lock != 0)
    }
}
