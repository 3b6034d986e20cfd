//! What one storm does: clients with their settings, actors with the calls that they make, and the faults; all of it
//! follows from a seed, and can be made smaller.

use std::fmt;
use std::time::Duration;

use fairlock::LockKind;

use crate::weather::Fault;

/// Everything that is left to chance in one run.
#[derive(Clone, Debug)]
pub struct Program {
    pub seed: u64,
    pub clients: Vec<Settings>,
    pub actors: Vec<Actor>,
    pub locks: usize,
    pub faults: Vec<Fault>,
    /// How long a call may take until the backend says that there was no answer.
    pub response: Duration,
}

/// The settings of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub lease: Duration,
    pub place_ttl: Duration,
    pub outage_limit: Duration,
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
}

/// Which lock is asked for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub lock: usize,
    pub kind: LockKind,
    pub terms: Terms,
    /// One of the owners that all actors of the client share; none for the thread itself.
    pub owner: Option<usize>,
}

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
}

/// One call of the public interface. Numbers of guards and requests count those that the actor has then, modulo how
/// many there are, so that a call keeps its meaning when others are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `lock`, `try_lock`, `try_lock_for`; `listens`: takes the channel `lost()` too.
    Take {
        ask: Ask,
        wait: Wait,
        listens: bool,
    },
    /// Gives up a guard.
    GiveBack {
        guard: usize,
        end: End,
    },
    /// Gives back a hold that was leaked.
    Unleak {
        nth: usize,
    },
    Bump {
        guard: usize,
    },
    Renew {
        guard: usize,
    },
    /// Waits for the end of a hold that has one, and asks again in that very moment.
    Outlive {
        guard: usize,
    },
    /// `request`: a place that no caller waits on.
    Request {
        ask: Ask,
    },
    /// Waits on a request.
    Await {
        request: usize,
        wait: Wait,
    },
    /// Drops a request.
    Withdraw {
        request: usize,
    },
    /// Ends the waits of an actor.
    Cancel {
        actor: usize,
    },
    Force {
        lock: usize,
    },
    /// Takes a waiter's place away.
    Kick {
        lock: usize,
        nth: usize,
    },
    Look {
        lock: usize,
    },
    Shutdown,
    /// Drops the actor's client, which ends when its last guard and request are dropped.
    DropClient,
    /// Makes a new client in place of the one that was shut down or dropped.
    Restart,
}

impl Program {
    /// How many calls and faults there are.
    pub fn size(&self) -> usize {
        self.faults.len() + self.actors.iter().map(|actor| actor.ops.len()).sum::<usize>()
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

    pub fn longest_lease(&self) -> Duration {
        let fixed = self.actors.iter().flat_map(|actor| &actor.ops).filter_map(|op| op.what.lease());
        self.clients.iter().map(|client| client.lease).chain(fixed).max().unwrap_or_default()
    }
}

impl What {
    /// The length of the fixed lease that is asked for.
    pub fn lease(&self) -> Option<Duration> {
        match self {
            What::Take { ask, .. } | What::Request { ask } => match ask.terms {
                Terms::Fixed(lease) => Some(lease),
                Terms::Renewed | Terms::Capped(_) => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program of seed {}, response time-out {:?}", self.seed, self.response)?;
        for (number, client) in self.clients.iter().enumerate() {
            let Settings { lease, place_ttl, outage_limit } = client;
            writeln!(f, "  client c{number}: lease {lease:?}, place {place_ttl:?}, outage {outage_limit:?}")?;
        }
        for (number, actor) in self.actors.iter().enumerate().filter(|(_, actor)| !actor.ops.is_empty()) {
            writeln!(f, "  actor a{number} of c{}:", actor.client)?;
            for op in &actor.ops {
                let hurt = op.hurt.map_or_else(String::new, |hurt| format!(" ({hurt:?})"));
                writeln!(f, "    {:>12} {}{hurt}", format!("{:?}", op.at), op.what)?;
            }
        }
        for fault in &self.faults {
            writeln!(f, "  {fault}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{} {:?}", self.lock, self.kind)?;
        match self.terms {
            Terms::Renewed => {}
            terms => write!(f, " {terms:?}")?,
        }
        self.owner.map_or(Ok(()), |owner| write!(f, " as owner {owner}"))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Take { ask, wait: Wait::No, .. } => write!(f, "try_lock {ask}"),
            What::Take { ask, wait: Wait::UpTo(time), .. } => write!(f, "try_lock_for({time:?}) {ask}"),
            What::Take { ask, wait: Wait::Forever, .. } => write!(f, "lock {ask}"),
            What::GiveBack { guard, end } => write!(f, "{end:?} guard {guard}"),
            What::Unleak { nth } => write!(f, "unlock leaked {nth}"),
            What::Bump { guard } => write!(f, "bump guard {guard}"),
            What::Renew { guard } => write!(f, "renew guard {guard}"),
            What::Outlive { guard } => write!(f, "outlive guard {guard}, and ask again"),
            What::Request { ask } => write!(f, "request {ask}"),
            What::Await { request, wait } => write!(f, "await {wait:?} request {request}"),
            What::Withdraw { request } => write!(f, "drop request {request}"),
            What::Cancel { actor } => write!(f, "cancel a{actor}"),
            What::Force { lock } => write!(f, "force_unlock L{lock}"),
            What::Kick { lock, nth } => write!(f, "kick L{lock} waiter {nth}"),
            What::Look { lock } => write!(f, "inspect L{lock}"),
            What::Shutdown => f.write_str("shutdown"),
            What::DropClient => f.write_str("drop client"),
            What::Restart => f.write_str("new client"),
        }
    }
}
