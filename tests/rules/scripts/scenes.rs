//! The rows of the table: an operation, and the situation before it.

use std::fmt::Debug;
use std::time::Duration;

use fairlock::backend::{Acquired, Backend, BackendError, Renew, Renewal, Wait, Withdrawn, only};
use fairlock::owner::ClientId;
use fairlock::{FencingToken, RedisBackend};
use fairlock_core::backend::Since;

use super::world::{LEASE, NAME, Rules, World};

/// The situation before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// The lock was never used.
    New,
    /// Anna released it.
    Used,
    /// Anna holds it.
    Held,
    /// Anna holds it, and Cleo and Ben wait: Cleo is first, but deaf.
    Queue,
    /// Anna holds it, and Ben waits, who would hear of a grant.
    QueueOfBen,
    /// They wait, and Anna's lease has ended.
    QueueAndFree,
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Acquire,
    AcquireOnce,
    /// Dora wants it once in an hour.
    AcquireHourly,
    /// Ben, who may have a place, asks for it.
    AcquireAgain,
    AcquireOnceAgain,
    /// Anna, who may hold it, repeats her request.
    AcquireRepeated,
    /// Anna, who may hold it, makes a new request.
    AcquireAnew,
    RenewPlace,
    RenewHold,
    RenewHoldTwice,
    Release,
    /// Dora adopts Anna's hold.
    Adopt,
    Withdraw,
    ForceRelease,
    Inspect,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) before: Before,
    pub(crate) ask: Ask,
    /// A full server refuses newcomers only.
    pub(crate) is_refused_when_full: bool,
}

pub(crate) fn scenes(rules: Rules) -> Vec<Scene> {
    use Ask::*;
    use Before::*;
    // The others need a holder or a waiter.
    let of_a_free_lock = [Acquire, AcquireOnce, AcquireHourly, RenewPlace, Withdraw, ForceRelease, Inspect];
    let of_a_waiter = [AcquireAgain, AcquireOnceAgain, AcquireRepeated, AcquireAnew];
    let of_a_holder = [RenewHold, RenewHoldTwice, Release, Adopt];
    let all = [&of_a_free_lock[..], &of_a_waiter, &of_a_holder].concat();
    let mut scenes = Vec::new();
    for before in [New, Used, Held, Queue, QueueOfBen, QueueAndFree] {
        if rules == Rules::Plain && matches!(before, Queue | QueueOfBen | QueueAndFree) {
            continue; // there is no queue
        }
        let asks = match before {
            New | Used => &of_a_free_lock[..],
            QueueOfBen => &[Release], // what differs: the scripts' case of a hand-over
            _ => &all,
        };
        scenes.extend(asks.iter().map(|ask| {
            let is_refused_when_full = is_refused_when_full(rules, before, *ask);
            Scene { before, ask: *ask, is_refused_when_full }
        }));
    }
    scenes
}

/// A request without a hold or a place is refused, unless there is nothing to write.
fn is_refused_when_full(rules: Rules, before: Before, ask: Ask) -> bool {
    let held = matches!(before, Before::Held | Before::Queue | Before::QueueOfBen);
    let in_queue = matches!(before, Before::Queue | Before::QueueOfBen | Before::QueueAndFree);
    let newcomer = match ask {
        Ask::Acquire | Ask::AcquireOnce | Ask::AcquireHourly | Ask::AcquireAnew => true,
        Ask::AcquireAgain | Ask::AcquireOnceAgain => !in_queue,
        Ask::AcquireRepeated => !held,
        _ => false,
    };
    // The note of an ask for once in an hour finds room in any case.
    let is_once = matches!(ask, Ask::AcquireOnce | Ask::AcquireHourly | Ask::AcquireOnceAgain);
    let only_looks = match rules {
        Rules::HandOff | Rules::All => held && is_once,
        // Where units are free beside a queue, any request is a heartbeat of the queue.
        Rules::Parts => before == Before::Held && is_once,
        Rules::Redisson => false,
        Rules::Plain => held,
    };
    newcomer && !only_looks
}

impl Before {
    /// Creates the situation. Returns the token of Anna's hold, which may have ended.
    pub(crate) fn arrange(self, world: &World) -> FencingToken {
        world.query::<()>(&[&["DEL"], world.rules.keys()].concat());
        let mut token = FencingToken::new(1);
        if self == Before::New {
            return token;
        }
        match only(world.backend.acquire(&[world.ask(&world.anna, Wait::Forever)])).unwrap() {
            Acquired::Granted { token: granted, .. } => token = granted,
            other => panic!("{other:?}"),
        }
        let waiters = match self {
            Before::Queue | Before::QueueAndFree => &[&world.cleo, &world.ben][..],
            Before::QueueOfBen => &[&world.ben],
            _ => &[],
        };
        for who in waiters {
            let queued = only(world.backend.acquire(&[world.ask(who, Wait::Forever)])).unwrap();
            assert!(matches!(queued, Acquired::Queued { .. }), "{queued:?}");
        }
        match self {
            Before::Used => {
                only(world.backend.release(&[world.hold(&world.anna, token)])).unwrap();
            }
            Before::QueueAndFree => {
                world.query::<()>(&["DEL", NAME, "fairlock_ends:{orders}"]);
            }
            _ => {}
        }
        token
    }
}

impl Ask {
    /// Runs the operation, and returns its outcome in a word or two.
    pub(crate) fn run(
        self,
        world: &World,
        backend: &RedisBackend,
        token: FencingToken,
    ) -> Result<String, BackendError> {
        let acquire = |who, wait| only(backend.acquire(&[world.ask(who, wait)])).map(acquired);
        let (anna, ben) = (&world.anna, &world.ben);
        match self {
            Ask::Acquire => acquire(&world.dora, Wait::Forever),
            Ask::AcquireOnce => acquire(&world.dora, Wait::No),
            Ask::AcquireHourly => {
                let mut ask = world.ask(&world.dora, Wait::No);
                ask.condition.not_granted = Some(Since::PeriodBegan(Duration::from_secs(3600)));
                only(backend.acquire(&[ask])).map(acquired)
            }
            Ask::AcquireAgain => acquire(ben, Wait::Forever),
            Ask::AcquireOnceAgain => acquire(ben, Wait::No),
            Ask::AcquireRepeated => acquire(anna, Wait::Forever),
            Ask::AcquireAnew => acquire(&world.anna_again, Wait::Forever),
            Ask::RenewPlace => {
                let place = world.place(ben, Wait::Forever);
                renew(backend, Renew::Place { place, lease: LEASE })
            }
            Ask::RenewHold | Ask::RenewHoldTwice => {
                let holds = if self == Ask::RenewHold { 1 } else { 2 };
                let hold = world.hold(anna, token);
                renew(backend, Renew::Hold { hold, holds, lease: 2 * LEASE })
            }
            Ask::Release => only(backend.release(&[world.hold(anna, token)])).map(word),
            Ask::Adopt => backend.adopt(&world.hold(anna, token), &world.dora.owner, LEASE / 2).map(word),
            Ask::Withdraw => {
                only(backend.withdraw(&[world.place(ben, Wait::Forever)])).map(|withdrawn| match withdrawn {
                    Withdrawn::Left => "left".to_owned(),
                    Withdrawn::WasGranted { lease, .. } => format!("was granted for {}", tens(lease)),
                    other => word(other),
                })
            }
            Ask::ForceRelease => backend.force_release(&world.lock).map(word),
            Ask::Inspect => backend.inspect(&world.lock, 0..100).map(|state| {
                let holder =
                    state.holder().cloned().map(|holder| (holder.owner.to_string(), holder.hold_count));
                let queue: Vec<_> = state.queue.iter().map(|waiter| waiter.owner.to_string()).collect();
                format!("{holder:?} before {queue:?}")
            }),
        }
    }
}

fn acquired(acquired: Acquired) -> String {
    match acquired {
        Acquired::Granted { lease, .. } => format!("granted for {}", tens(lease)),
        Acquired::Queued { rank, .. } => format!("queued behind {rank}"),
        Acquired::Busy { .. } => "busy".to_owned(),
        other => word(other),
    }
}

fn word(answer: impl Debug) -> String {
    format!("{answer:?}")
}

fn renew(backend: &RedisBackend, item: Renew<'_>) -> Result<String, BackendError> {
    let mut answers = backend.renew(ClientId::random(), &[item]);
    assert_eq!(answers.len(), 1);
    answers.remove(0).map(|answer| match answer {
        Renewal::Renewed => "renewed".to_owned(),
        Renewal::Waiting { rank, .. } => format!("waiting behind {rank}"),
        Renewal::Granted { lease, .. } => format!("granted for {}", tens(lease)),
        Renewal::Lost => "lost".to_owned(),
        other => word(other),
    })
}

fn tens(lease: Duration) -> u64 {
    super::world::tens(u64::try_from(lease.as_millis()).unwrap())
}
