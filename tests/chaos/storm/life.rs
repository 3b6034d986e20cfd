//! One client from its making to its end, and the wake-ups on their way to it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fairlock::backend::{RequestId, Wake, WakeSink};
use fairlock::owner::{ClientId, Owner};
use fairlock::{Client, FencingToken, Lost};

use crate::program::{Hurt, Settings};
use crate::world::locked;

/// One client from its making to its end.
pub struct Life {
    pub client: usize,
    pub generation: usize,
    pub settings: Settings,
    pub id: OnceLock<ClientId>,
    pub handle: Mutex<Option<Client>>,
    /// The cell, and each guard, request and call of an actor.
    pub users: AtomicUsize,
    pub owners: OnceLock<Vec<Owner>>,
    pub fate: Mutex<LifeState>,
}

#[derive(Default)]
pub struct LifeState {
    pub shutdown: Option<Shutdown>,
    /// When the last handle was dropped.
    pub dropped: Option<Duration>,
    pub losses: Vec<Told>,
    /// Wake-ups on their way, with the time when they arrive.
    pub mail: VecDeque<(Duration, Letter)>,
    pub sink: Option<Arc<dyn WakeSink>>,
    pub is_cut: bool,
    pub missed: bool,
    /// How many calls it made at this moment, and in this minute.
    pub at_moment: (Duration, u64),
    pub in_minute: u64,
    pub wake_ups: u64,
    /// Of each lock and owner.
    pub answered: HashMap<(String, String), Answers>,
    /// On a real server: a message of it was held back, and may arrive when the client has ended.
    pub sends_late: bool,
    /// What the next call for a task suffers: an actor does not make it itself.
    pub hurt_of_tasks: Option<Hurt>,
    /// Whether the last answer to an ask, of each lock and owner, said when to look.
    pub knows_when: HashMap<(String, String), bool>,
}

/// What an owner has heard of its request for a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// The request that was asked for last. The withdrawal of an earlier one says nothing of it.
    pub request: Option<RequestId>,
    /// When a call about it was answered last.
    pub answered: Option<Duration>,
    /// When the first after that was not.
    pub failed: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Shutdown {
    pub began: Duration,
    pub ended: Option<(Duration, Result<(), String>)>,
}

#[derive(Clone, Debug)]
pub struct Told {
    pub at: Duration,
    pub lost: Lost,
}

/// A wake-up that owns what it names.
#[derive(Clone, Debug)]
pub enum Letter {
    Granted { lock: String, owner: String, request: RequestId, token: FencingToken },
    Recheck { lock: String, owner: Option<String> },
    Taken { lock: String, owner: String, token: FencingToken },
    Gap,
}

impl Life {
    pub fn new(client: usize, generation: usize, settings: Settings) -> Life {
        Life {
            client,
            generation,
            settings,
            id: OnceLock::new(),
            handle: Mutex::default(),
            users: AtomicUsize::new(1),
            owners: OnceLock::new(),
            fate: Mutex::default(),
        }
    }

    pub fn id(&self) -> Option<ClientId> {
        self.id.get().copied()
    }

    pub fn owner(&self, number: usize) -> Option<&Owner> {
        self.owners.get()?.get(number)
    }

    /// The client, for a look; not to be kept.
    pub fn look<T>(&self, look: impl FnOnce(&Client) -> T) -> Option<T> {
        locked(&self.handle).as_ref().map(look)
    }

    pub fn is_shut_down(&self) -> bool {
        locked(&self.fate).shutdown.is_some()
    }

    pub fn is_dropped(&self) -> bool {
        locked(&self.fate).dropped.is_some()
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.client, self.generation)
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Letter {
    pub fn of(wake: Wake<'_>) -> Letter {
        match wake {
            Wake::Granted { lock, owner, request, token } => {
                Letter::Granted { lock: lock.into(), owner: owner.into(), request, token }
            }
            Wake::Recheck { lock, owner } => {
                Letter::Recheck { lock: lock.into(), owner: owner.map(str::to_owned) }
            }
            Wake::Taken { lock, owner, token } => {
                Letter::Taken { lock: lock.into(), owner: owner.into(), token }
            }
            Wake::Gap => Letter::Gap,
            other => panic!("{other:?}"),
        }
    }

    pub fn deliver(&self, sink: &dyn WakeSink) {
        sink.wake(match self {
            Letter::Granted { lock, owner, request, token } => {
                Wake::Granted { lock, owner, request: *request, token: *token }
            }
            Letter::Recheck { lock, owner } => Wake::Recheck { lock, owner: owner.as_deref() },
            Letter::Taken { lock, owner, token } => Wake::Taken { lock, owner, token: *token },
            Letter::Gap => Wake::Gap,
        });
    }
}
