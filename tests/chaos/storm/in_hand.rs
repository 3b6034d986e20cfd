//! What an actor has in hand: guards and requests of threads and of owners alike; and how it makes a call.

use std::sync::Arc;
use std::time::Duration;

use fairlock::CancelToken;
use fairlock::owner::HandOver;
use fairlock::owner::{Owner, Ownership};
use fairlock::waits::Receiver;
use fairlock::waits::{LockFuture, Request};
use fairlock::{AllGuard, AsyncGuard, Error, FencingToken, Guard, Lost, Result};

use crate::bounds::{Call, Limit};
use crate::life::{Life, Shutdown};
use crate::link;
use crate::program::{Ask, Wait};
use crate::server::name_of;
use crate::task;
use crate::world::{Using, World, locked};

pub enum AnyGuard {
    Thread(Guard),
    Owned(Guard<Owner>),
    Task(AsyncGuard),
    All(AllGuard),
    AllOfTask(AllGuard<AsyncGuard>),
}

pub enum Pending {
    Thread(Request),
    Owned(Request<Owner>),
    /// A future that was polled.
    Task(LockFuture),
    /// One that was ready at once.
    TaskIsReady(AsyncGuard),
}

/// Makes the call, and shows that it is under way.
pub fn call<T>(
    world: &World,
    number: usize,
    what: String,
    life: &Arc<Life>,
    limit: Limit,
    cancel: &CancelToken,
    act: impl FnOnce() -> T,
) -> T {
    world.note(format_args!("a{number} with {life}: {what}"));
    let (life, cancel) = (Arc::clone(life), cancel.clone());
    let call = Call { what, life, began: world.now(), limit, cancel };
    locked(&world.calls)[number] = Some(call);
    let result = act();
    locked(&world.calls)[number] = None;
    result
}

#[derive(Clone, Copy)]
pub enum ClientEnd {
    Shutdown,
    Drain(Duration),
}

/// Every other actor makes the calls of an operator, and those that end a client, as a task does.
pub fn is_by_task(actor: usize) -> bool {
    actor % 2 == 1
}

/// Ends the client, and notes when that began and what came of it.
pub fn end_client(world: &World, using: &Using, number: usize, how: ClientEnd) {
    let life = &using.life;
    let first = {
        let mut fate = locked(&life.fate);
        let first = fate.shutdown.is_none();
        fate.shutdown.get_or_insert(Shutdown { began: world.now(), ended: None });
        first
    };
    let (what, limit) = match how {
        ClientEnd::Shutdown => ("shutdown", Limit::Patient),
        ClientEnd::Drain(at_most) => ("drain", Limit::Drain(at_most)),
    };
    let (by_task, tasks) = (is_by_task(number), using.client.to_async());
    let result = call(world, number, what.into(), life, limit, &CancelToken::new(), || match how {
        ClientEnd::Shutdown if by_task => task::wait_for(world, tasks.shutdown()),
        ClientEnd::Shutdown => using.client.shutdown(),
        ClientEnd::Drain(at_most) => {
            let drained = match by_task {
                true => task::wait_for(world, tasks.drain(at_most)),
                false => using.client.drain(at_most),
            };
            drained.map(|cut_off| {
                world.count(if cut_off.is_empty() { "drain: in order" } else { "drain: cut off" });
            })
        }
    });
    world.note(format_args!("a{number}: {what} of {life}: {result:?}"));
    let mut fate = locked(&life.fate);
    if let (true, Some(shutdown)) = (first, &mut fate.shutdown) {
        shutdown.ended = Some((world.now(), result.map_err(|error| error.to_string())));
    }
}

/// How the calling thread is called: the error of a refused unlock tells it, without a round trip.
pub fn thread_owner(using: &Using) -> Result<String> {
    match using.client.fair_lock("nobody takes this")?.unlock() {
        Err(Error::NotHeld { owner, .. }) => Ok(owner.to_string()),
        Err(error) => Err(error),
        Ok(()) => panic!("a lock that nobody takes was unlocked"),
    }
}

/// Who asks; none where each call is its own owner.
pub fn owner_of(using: &Using, ask: Ask) -> Result<Option<String>> {
    match ask.owner.and_then(|owner| using.life.owner(owner)) {
        Some(owner) => Ok(Some(owner.id().to_string())),
        None if ask.is_anonymous() => Ok(None),
        None => thread_owner(using).map(Some),
    }
}

/// Begins a wait of a task, and says which owner that is. Owners are numbered: none is said if others were made at the same time.
pub fn begin_as_task<T>(using: &Using, begin: impl FnOnce() -> T) -> (T, Option<String>) {
    let number = || using.client.new_owner().id().as_str().rsplit(':').next()?.parse::<u64>().ok();
    let before = number();
    let begun = begin();
    let is_only = before.zip(number()).filter(|(before, after)| *after == *before + 2);
    (begun, is_only.map(|(before, _)| format!("{}:{}", using.client.id(), before + 1)))
}

/// Who has asked for this, as far as it can be known.
pub fn asked_as(using: &Using, ask: Ask) -> Option<String> {
    match owner_of(using, ask) {
        Ok(Some(owner)) => Some(owner),
        Ok(None) => link::asked_last().filter(|(lock, _)| *lock == name_of(ask.lock)).map(|(_, owner)| owner),
        Err(_) => None,
    }
}

impl AnyGuard {
    /// The locks' numbers and tokens. `lock`: of a guard of one lock.
    pub fn holds(&self, lock: usize) -> Vec<(usize, FencingToken)> {
        match self {
            AnyGuard::Thread(guard) => vec![(lock, guard.token())],
            AnyGuard::Owned(guard) => vec![(lock, guard.token())],
            AnyGuard::Task(guard) => vec![(lock, guard.token())],
            AnyGuard::All(guard) => tokens_of(|lock| guard.token(lock)),
            AnyGuard::AllOfTask(guard) => tokens_of(|lock| guard.token(lock)),
        }
    }

    /// None for a guard of several locks.
    pub fn owner(&self) -> Option<String> {
        match self {
            AnyGuard::Thread(guard) => Some(guard.owner().to_string()),
            AnyGuard::Owned(guard) => Some(guard.owner().to_string()),
            AnyGuard::Task(guard) => Some(guard.owner().to_string()),
            AnyGuard::All(_) | AnyGuard::AllOfTask(_) => None,
        }
    }

    /// None for a task, which has a future instead.
    pub fn lost(&self) -> Option<Receiver<Lost>> {
        Some(match self {
            AnyGuard::Thread(guard) => guard.lost().clone(),
            AnyGuard::Owned(guard) => guard.lost().clone(),
            AnyGuard::Task(_) | AnyGuard::AllOfTask(_) => return None,
            AnyGuard::All(guard) => guard.lost().clone(),
        })
    }

    pub fn unlock(self, world: &World) -> Result<()> {
        match self {
            AnyGuard::Thread(guard) => guard.unlock(),
            AnyGuard::Owned(guard) => guard.unlock(),
            AnyGuard::Task(guard) => task::wait_for(world, guard.unlock()),
            AnyGuard::All(guard) => guard.unlock(),
            AnyGuard::AllOfTask(guard) => task::wait_for(world, guard.unlock()),
        }
    }

    /// None for a guard of several locks, which can't be handed over: it is dropped.
    pub fn hand_over(self, world: &World) -> Option<Result<HandOver>> {
        Some(match self {
            AnyGuard::Thread(guard) => guard.hand_over(),
            AnyGuard::Owned(guard) => guard.hand_over(),
            AnyGuard::Task(guard) => task::wait_for(world, guard.hand_over()),
            AnyGuard::All(_) | AnyGuard::AllOfTask(_) => return None,
        })
    }

    /// A guard of several locks can't be leaked.
    pub fn leak(self) {
        match self {
            AnyGuard::Thread(guard) => guard.leak(),
            AnyGuard::Owned(guard) => guard.leak(),
            AnyGuard::Task(guard) => guard.into_blocking().leak(),
            AnyGuard::All(guard) => drop(guard),
            AnyGuard::AllOfTask(guard) => drop(guard),
        }
    }

    pub fn valid_for(&self) -> Duration {
        match self {
            AnyGuard::Thread(guard) => guard.valid_for(),
            AnyGuard::Owned(guard) => guard.valid_for(),
            AnyGuard::Task(guard) => guard.valid_for(),
            AnyGuard::All(guard) => guard.valid_for(),
            AnyGuard::AllOfTask(guard) => guard.valid_for(),
        }
    }

    pub fn renew(&self, world: &World) -> Result<Duration> {
        match self {
            AnyGuard::Thread(guard) => guard.renew(),
            AnyGuard::Owned(guard) => guard.renew(),
            AnyGuard::Task(guard) => task::wait_for(world, guard.renew()),
            AnyGuard::All(guard) => guard.renew(),
            AnyGuard::AllOfTask(guard) => task::wait_for(world, guard.renew()),
        }
    }
}

fn tokens_of(token: impl Fn(&str) -> Option<FencingToken>) -> Vec<(usize, FencingToken)> {
    (0..8).filter_map(|lock| Some((lock, token(&name_of(lock))?))).collect()
}

impl From<Guard> for AnyGuard {
    fn from(guard: Guard) -> AnyGuard {
        AnyGuard::Thread(guard)
    }
}

impl From<Guard<Owner>> for AnyGuard {
    fn from(guard: Guard<Owner>) -> AnyGuard {
        AnyGuard::Owned(guard)
    }
}

/// A guard, or a request that goes on.
type Waited = (Option<AnyGuard>, Option<Pending>);

impl Pending {
    /// Polls it once: its place is taken.
    pub fn begin(world: &World, mut locking: LockFuture) -> Result<Pending> {
        Ok(match task::wait(world, &mut locking, Some(Duration::ZERO)) {
            Some(guard) => Pending::TaskIsReady(guard?),
            None => Pending::Task(locking),
        })
    }

    pub fn wait(self, world: &World, wait: Wait) -> Result<Waited> {
        match self {
            Pending::Task(mut locking) => {
                let time = match wait {
                    Wait::Forever => None,
                    Wait::No => Some(Duration::ZERO),
                    Wait::UpTo(time) => Some(time),
                };
                Ok(match task::wait(world, &mut locking, time) {
                    Some(guard) => (Some(AnyGuard::Task(guard?)), None),
                    None => (None, Some(Pending::Task(locking))),
                })
            }
            Pending::TaskIsReady(guard) => Ok((Some(AnyGuard::Task(guard)), None)),
            Pending::Thread(request) => wait_on(request, wait, Pending::Thread),
            Pending::Owned(request) => wait_on(request, wait, Pending::Owned),
        }
    }
}

fn wait_on<O: Ownership>(
    mut request: Request<O>,
    wait: Wait,
    again: impl FnOnce(Request<O>) -> Pending,
) -> Result<Waited>
where
    Guard<O>: Into<AnyGuard>,
{
    let time = match wait {
        Wait::Forever => return Ok((Some(request.wait()?.into()), None)),
        Wait::No => Duration::ZERO,
        Wait::UpTo(time) => time,
    };
    let guard = request.wait_for(time)?.granted();
    Ok((guard.map(Into::into), Some(again(request))))
}
