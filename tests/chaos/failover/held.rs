//! What is held in a round, and what each part takes of it.
//!
//! | held | units | holder | second holder | each waiter | poller |
//! | --- | --- | --- | --- | --- | --- |
//! | `fair` | 1 | 1 | | 1 | 1 |
//! | `rw` | a writer takes all | reads | reads | writes | reads |
//! | `semaphore` | 3 | 2 | 1 | 1 | 1 |
//! | `lock-all` | 1 of each of two locks | both locks | | the first one | the second one |

use std::time::Duration;

use fairlock::owner::Owner;
use fairlock::{AllGuard, Client, Lock, Semaphore};
use fairlock_tests::history::now_ns;

/// The permits of the semaphore.
const PERMITS: u32 = 3;

/// A kind of locks, or of how they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Held {
    Fair,
    Rw,
    Semaphore,
    LockAll,
}

/// The part of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Keeps its hold.
    Holder,
    /// Keeps its hold for some time, then asks again.
    Second,
    Waiter,
    Poller,
}

impl Part {
    pub(crate) const ALL: [Part; 4] = [Part::Holder, Part::Second, Part::Waiter, Part::Poller];

    /// Whether it takes the probe in turns.
    pub(crate) fn probes(self) -> bool {
        matches!(self, Part::Waiter | Part::Poller)
    }
}

impl Held {
    pub(crate) const ALL: [Held; 4] = [Held::Fair, Held::Rw, Held::Semaphore, Held::LockAll];

    /// The parts of the workers, by their numbers.
    pub(crate) fn parts(self) -> &'static [Part] {
        match self {
            Held::Fair | Held::LockAll => &[Part::Holder, Part::Poller, Part::Waiter, Part::Waiter],
            Held::Rw | Held::Semaphore => {
                &[Part::Holder, Part::Poller, Part::Waiter, Part::Waiter, Part::Second]
            }
        }
    }

    /// How many units a lock has.
    pub(crate) fn capacity(self) -> u32 {
        match self {
            Held::Fair | Held::LockAll => 1,
            Held::Rw => u32::MAX,
            Held::Semaphore => PERMITS,
        }
    }

    /// How many wait for this lock.
    pub(crate) fn queue_length(self, client: &Client, name: &str) -> fairlock::Result<u64> {
        let state = match self {
            Held::Fair | Held::LockAll => client.fair_lock(name)?.admin().inspect(),
            Held::Rw => client.rw_lock(name)?.admin().inspect(),
            Held::Semaphore => client.semaphore(name, PERMITS)?.admin().inspect(),
        };
        Ok(state?.queue_length)
    }

    /// What this part asks for. Only `lock-all` has a second lock.
    pub(crate) fn handle(self, client: &Client, part: Part, names: [&str; 2]) -> fairlock::Result<Handle> {
        let [first, second] = names;
        let one = |lock: Lock, name: &str, units| Handle {
            ask: Ask::Lock(lock),
            names: vec![name.to_owned()],
            units,
        };
        Ok(match (self, part) {
            (Held::LockAll, Part::Holder) => {
                Handle { ask: Ask::All(client.clone()), names: names.map(str::to_owned).to_vec(), units: 1 }
            }
            (Held::LockAll, Part::Poller) => one(client.fair_lock(second)?, second, 1),
            (Held::Fair | Held::LockAll, _) => one(client.fair_lock(first)?, first, 1),
            (Held::Rw, Part::Waiter) => one(client.rw_lock(first)?.writer().clone(), first, self.capacity()),
            (Held::Rw, _) => one(client.rw_lock(first)?.reader().clone(), first, 1),
            (Held::Semaphore, _) => Handle {
                ask: Ask::Permits(client.semaphore(first, PERMITS)?),
                names: vec![first.to_owned()],
                units: if part == Part::Holder { 2 } else { 1 },
            },
        })
    }
}

/// How a worker asks.
pub(crate) struct Handle {
    ask: Ask,
    /// The names of the locks.
    pub(crate) names: Vec<String>,
    /// Units of each.
    pub(crate) units: u32,
}

enum Ask {
    Lock(Lock),
    Permits(Semaphore),
    All(Client),
}

impl Handle {
    /// Zero is no wait.
    pub(crate) fn ask(&self, wait: Duration) -> fairlock::Result<Option<Guard>> {
        Ok(match &self.ask {
            Ask::Lock(lock) => lock.try_lock_for(wait)?.granted().map(Guard::One),
            Ask::Permits(semaphore) => {
                semaphore.try_acquire_many_for(self.units, wait)?.granted().map(Guard::Permits)
            }
            Ask::All(client) => client.try_lock_all_for(&self.names, wait)?.granted().map(Guard::All),
        })
    }
}

/// What was granted.
pub(crate) enum Guard {
    One(fairlock::Guard),
    Permits(fairlock::Guard<Owner>),
    All(AllGuard),
}

impl Guard {
    /// A time at which the holder is certain; none if a hold is lost.
    pub(crate) fn look(&self) -> Option<u64> {
        let now = now_ns();
        let (is_lost, left) = match self {
            Guard::One(guard) => (guard.is_lost(), guard.valid_for()),
            Guard::Permits(guard) => (guard.is_lost(), guard.valid_for()),
            Guard::All(guard) => (guard.is_lost(), guard.valid_for()),
        };
        (!is_lost && !left.is_zero()).then_some(now)
    }

    /// The token of this lock.
    pub(crate) fn token(&self, name: &str) -> u64 {
        match self {
            Guard::One(guard) => guard.token().get(),
            Guard::Permits(guard) => guard.token().get(),
            Guard::All(guard) => guard.token(name).expect("it was asked for").get(),
        }
    }

    pub(crate) fn unlock(self) -> fairlock::Result<()> {
        match self {
            Guard::One(guard) => guard.unlock(),
            Guard::Permits(guard) => guard.unlock(),
            Guard::All(guard) => guard.unlock(),
        }
    }
}
