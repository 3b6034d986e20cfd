//! The handles of all kinds of locks, as an ask or an operator wants them.

use std::time::Duration;

use fairlock::CancelToken;
use fairlock::admin::{LockKind, LockState};
use fairlock::owner::{Owner, OwnerId, Ownership};
use fairlock::{AsyncClient, AsyncHold, AsyncLock, Client, Guard, Lock, Result, Semaphore, Term, TryLock};

use crate::actor::Site;
use crate::in_hand::{AnyGuard, Pending};
use crate::program::{Ask, Several, Terms, Unless, Wait};
use crate::server::name_of;
use crate::task;
use crate::world::{Using, World};

/// The handle of one ask; of a read-write lock it is one of its two halves.
pub enum Handle {
    Thread(Lock),
    Owned(Lock<Owner>),
    Permits(Semaphore),
}

impl Handle {
    pub fn of(using: &Using, ask: Ask, cancel: &CancelToken) -> Result<Handle> {
        let (client, name) = (&using.client, name_of(ask.lock));
        let owner = ask.owner.and_then(|owner| using.life.owner(owner));
        let lock = match ask.kind {
            LockKind::Semaphore { permits } => {
                let semaphore = client.semaphore(&name, permits)?.cancelled_by(cancel);
                let semaphore = match ask.terms {
                    Terms::Renewed => semaphore,
                    Terms::Fixed(lease) => semaphore.fixed_lease(lease),
                    Terms::Capped(limit) => semaphore.max_hold(limit),
                };
                let semaphore = owner.map_or(Ok(semaphore.clone()), |owner| semaphore.owned_by(owner));
                return semaphore.map(Handle::Permits);
            }
            LockKind::ReadWrite if ask.writes() => client.rw_lock(&name)?.writer().clone(),
            LockKind::ReadWrite => client.rw_lock(&name)?.reader().clone(),
            LockKind::Plain => client.plain_lock(&name)?,
            _ => client.fair_lock(&name)?,
        };
        let lock = lock.cancelled_by(cancel);
        let lock = match ask.terms {
            Terms::Renewed => lock,
            Terms::Fixed(lease) => lock.fixed_lease(lease),
            Terms::Capped(limit) => lock.max_hold(limit),
        };
        owner.map_or(Ok(Handle::Thread(lock.clone())), |owner| lock.owned_by(owner).map(Handle::Owned))
    }

    pub fn get(&self, world: &World, ask: Ask, wait: Wait) -> Result<Option<AnyGuard>> {
        if ask.by_task {
            let lock = self.for_tasks(ask)?;
            if let Some(unless) = ask.unless {
                let future = match unless {
                    Unless::Every(period) => lock.every(period)?.try_lock(),
                    Unless::NotWithin(time) => lock.not_within(time)?.try_lock(),
                    Unless::MostWaiting(most) => lock.most_waiting(most)?.try_lock_for(timed(wait)),
                };
                return Ok(task::wait_for(world, future)?.granted().map(AnyGuard::Task));
            }
            let guard = match wait {
                Wait::No => task::wait_for(world, lock.try_lock())?.granted(),
                Wait::UpTo(time) => task::wait_for(world, lock.try_lock_for(time))?.granted(),
                Wait::Forever => Some(task::wait_for(world, lock.lock())?),
            };
            return Ok(guard.map(AnyGuard::Task));
        }
        match self {
            Handle::Thread(lock) => get(lock, wait, ask.unless),
            Handle::Owned(lock) => get(lock, wait, ask.unless),
            Handle::Permits(semaphore) => Ok(match (wait, ask.units) {
                (Wait::No, 1) => semaphore.try_acquire()?.granted(),
                (Wait::No, units) => semaphore.try_acquire_many(units)?.granted(),
                (Wait::UpTo(time), 1) => semaphore.try_acquire_for(time)?.granted(),
                (Wait::UpTo(time), units) => semaphore.try_acquire_many_for(units, time)?.granted(),
                (Wait::Forever, 1) => Some(semaphore.acquire()?),
                (Wait::Forever, units) => Some(semaphore.acquire_many(units)?),
            }
            .map(AnyGuard::Owned)),
        }
    }

    pub fn for_tasks(&self, ask: Ask) -> Result<AsyncLock> {
        Ok(match self {
            Handle::Thread(lock) => lock.to_async(),
            Handle::Owned(lock) => lock.to_async(),
            Handle::Permits(semaphore) => semaphore.to_async().many(ask.units)?,
        })
    }

    pub fn request(&self, world: &World, ask: Ask) -> Result<Pending> {
        if ask.by_task {
            return Pending::begin(world, self.for_tasks(ask)?.lock());
        }
        Ok(match self {
            Handle::Thread(lock) => Pending::Thread(lock.request()?),
            Handle::Owned(lock) => Pending::Owned(lock.request()?),
            Handle::Permits(semaphore) if ask.units == 1 => Pending::Owned(semaphore.request()?),
            Handle::Permits(semaphore) => Pending::Owned(semaphore.request_many(ask.units)?),
        })
    }

    /// Works under the lock for so long. None: busy. A semaphore has no such call.
    pub fn work(&self, world: &World, how: How, lasts: Duration, site: &Site) -> Result<Option<()>> {
        match self {
            Handle::Thread(lock) => work(world, lock, how, lasts, site),
            Handle::Owned(lock) => work(world, lock, how, lasts, site),
            Handle::Permits(_) => Ok(None),
        }
    }

    /// Gives a leaked hold back. A semaphore has no such call.
    pub fn unlock(&self) -> Result<()> {
        match self {
            Handle::Thread(lock) => lock.unlock(),
            Handle::Owned(lock) => lock.unlock(),
            Handle::Permits(_) => Ok(()),
        }
    }
}

fn get<O: Ownership>(lock: &Lock<O>, wait: Wait, unless: Option<Unless>) -> Result<Option<AnyGuard>>
where
    Guard<O>: Into<AnyGuard>,
{
    let guard = match (unless, wait) {
        (Some(Unless::Every(period)), _) => lock.every(period)?.try_lock()?.granted(),
        (Some(Unless::NotWithin(time)), _) => lock.not_within(time)?.try_lock()?.granted(),
        (Some(Unless::MostWaiting(most)), _) => lock.most_waiting(most)?.try_lock_for(timed(wait))?.granted(),
        (None, Wait::No) => lock.try_lock()?.granted(),
        (None, Wait::UpTo(time)) => lock.try_lock_for(time)?.granted(),
        (None, Wait::Forever) => Some(lock.lock()?),
    };
    Ok(guard.map(Into::into))
}

/// The time of a wait with a limit.
fn timed(wait: Wait) -> Duration {
    if let Wait::UpTo(time) = wait { time } else { Duration::ZERO }
}

/// How work gets its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    With(Wait),
    Lead,
}

fn work<O: Ownership>(
    world: &World,
    lock: &Lock<O>,
    how: How,
    lasts: Duration,
    site: &Site,
) -> Result<Option<()>> {
    let act = |guard: &Guard<O>| {
        let _work = site.begin(guard.owner().as_str(), guard.token());
        world.clock.sleep(lasts);
    };
    let lead = |term: &Term<'_, O>| {
        let _work = site.begin(term.owner().as_str(), term.token());
        let _ = term.sleep(site.lasts(lasts));
    };
    match how {
        How::With(Wait::No) => lock.try_with(act).map(done),
        How::With(Wait::UpTo(time)) => lock.try_with_for(time, act).map(done),
        How::With(Wait::Forever) => lock.with(act).map(Some),
        How::Lead => match lock.lead(lead)? {
            Some(()) => Ok(Some(())),
            // A drain ended the campaign, and refuses the next ask, unless another actor holds the lock as the same owner.
            None => lock.lock().map(|_again| assert!(lock.hold_count() > 1, "{DRAINS}")).map(Some),
        },
    }
}

const DRAINS: &str = "a client that drains grants nothing";

/// The same for a task.
pub async fn work_as_task(
    world: &World,
    lock: AsyncLock,
    how: How,
    lasts: Duration,
    site: &Site,
) -> Result<Option<()>> {
    // It begins before the first poll, which finds a hold lost that was taken since the grant.
    let act = |hold: AsyncHold| {
        let work = site.begin(hold.owner().as_str(), hold.token());
        async move {
            let _work = work;
            let _ = world.bell().nap(site.lasts(lasts)).await;
        }
    };
    match how {
        How::With(Wait::No) => lock.try_with(act).await.map(done),
        How::With(Wait::UpTo(time)) => lock.try_with_for(time, act).await.map(done),
        How::With(Wait::Forever) => lock.with(act).await.map(Some),
        How::Lead => match lock.lead(act).await? {
            Some(()) => Ok(Some(())),
            None => lock.lock().await.map(|_re_entered| Some(())),
        },
    }
}

fn done(tried: TryLock<()>) -> Option<()> {
    match tried {
        TryLock::Granted(()) => Some(()),
        TryLock::Busy(_) => None,
    }
}

/// Several locks at once, named from the last to the first.
pub fn get_all(client: &Client, locks: Several, wait: Wait) -> Result<Option<AnyGuard>> {
    let names = names_of(locks);
    let guard = match wait {
        Wait::No => client.try_lock_all(&names)?.granted(),
        Wait::UpTo(time) => client.try_lock_all_for(&names, time)?.granted(),
        Wait::Forever => Some(client.lock_all(&names)?),
    };
    Ok(guard.map(AnyGuard::All))
}

/// The same for a task.
pub async fn get_all_as_task(client: &AsyncClient, locks: Several, wait: Wait) -> Result<Option<AnyGuard>> {
    let names = names_of(locks);
    let guard = match wait {
        Wait::No => client.try_lock_all(&names).await?.granted(),
        Wait::UpTo(time) => client.try_lock_all_for(&names, time).await?.granted(),
        Wait::Forever => Some(client.lock_all(&names).await?),
    };
    Ok(guard.map(AnyGuard::AllOfTask))
}

fn names_of(locks: Several) -> Vec<String> {
    locks.iter().rev().map(name_of).collect()
}

/// The handle of an operator, who knows what kind of lock it is.
pub enum Desk<'a> {
    Thread(Lock),
    Task(&'a World, AsyncLock),
}

impl<'a> Desk<'a> {
    pub fn of(
        world: &'a World,
        client: &Client,
        (lock, kind): (usize, LockKind),
        by_task: bool,
    ) -> Result<Desk<'a>> {
        let name = name_of(lock);
        Ok(match kind {
            _ if by_task => Desk::Task(world, client.to_async().lock_of(&name, kind)?),
            LockKind::Plain => Desk::Thread(client.fair_lock(&name)?),
            _ => Desk::Thread(client.lock_of(&name, kind)?),
        })
    }

    pub fn inspect(&self) -> Result<LockState> {
        match self {
            Desk::Thread(lock) => {
                lock.is_locked()?;
                lock.admin().inspect()
            }
            Desk::Task(world, lock) => task::wait_for(world, lock.admin().inspect()),
        }
    }

    pub fn force(&self) -> Result<bool> {
        match self {
            Desk::Thread(lock) => lock.admin().force_unlock(),
            Desk::Task(world, lock) => task::wait_for(world, lock.admin().force_unlock()),
        }
    }

    pub fn force_of(&self, owner: &OwnerId) -> Result<bool> {
        match self {
            Desk::Thread(lock) => lock.admin().force_unlock_of(owner),
            Desk::Task(world, lock) => task::wait_for(world, lock.admin().force_unlock_of(owner)),
        }
    }
}
