//! The handles of all kinds of locks, as an ask or an operator wants them.

use fairlock::{
    AsyncLock, Cancel, Client, FencingToken, Guard, Lock, LockKind, LockState, OwnedLock, OwnerId, Ownership,
    Result, RwLock, Semaphore, TryLock, Waiter,
};

use crate::in_hand::{AnyGuard, Pending};
use crate::program::{Ask, Several, Terms, Wait};
use crate::server::name_of;
use crate::task;
use crate::world::{Using, World};

/// The handle of one ask; of a read-write lock it is one of its two halves.
pub enum Handle {
    Thread(Lock),
    Owned(OwnedLock),
    Permits(Semaphore),
}

impl Handle {
    pub fn of(using: &Using, ask: Ask, cancel: &Cancel) -> Result<Handle> {
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
            let guard = match wait {
                Wait::No => task::wait_for(world, lock.try_lock())?.guard(),
                Wait::UpTo(time) => task::wait_for(world, lock.try_lock_for(time))?.guard(),
                Wait::Forever => Some(task::wait_for(world, lock.lock())?),
            };
            return Ok(guard.map(AnyGuard::Task));
        }
        match self {
            Handle::Thread(lock) => get(lock, wait),
            Handle::Owned(lock) => get(lock, wait),
            Handle::Permits(semaphore) => Ok(match (wait, ask.units) {
                (Wait::No, 1) => semaphore.try_acquire()?.guard(),
                (Wait::No, units) => semaphore.try_acquire_many(units)?.guard(),
                (Wait::UpTo(time), 1) => semaphore.try_acquire_for(time)?.guard(),
                (Wait::UpTo(time), units) => semaphore.try_acquire_many_for(units, time)?.guard(),
                (Wait::Forever, 1) => Some(semaphore.acquire()?),
                (Wait::Forever, units) => Some(semaphore.acquire_many(units)?),
            }
            .map(AnyGuard::Owned)),
        }
    }

    fn for_tasks(&self, ask: Ask) -> Result<AsyncLock> {
        Ok(match self {
            Handle::Thread(lock) => lock.to_async(),
            Handle::Owned(lock) => lock.to_async(),
            Handle::Permits(semaphore) => semaphore.to_async(ask.units)?,
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

    /// A closure under the lock; it is told owner and token. None: busy. A semaphore has no such call.
    pub fn with<T>(&self, wait: Wait, act: impl FnOnce(String, FencingToken) -> T) -> Result<Option<T>> {
        match self {
            Handle::Thread(lock) => with(lock, wait, act),
            Handle::Owned(lock) => with(lock, wait, act),
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

fn get<O: Ownership>(lock: &Lock<O>, wait: Wait) -> Result<Option<AnyGuard>>
where
    Guard<O>: Into<AnyGuard>,
{
    let guard = match wait {
        Wait::No => lock.try_lock()?.guard(),
        Wait::UpTo(time) => lock.try_lock_for(time)?.guard(),
        Wait::Forever => Some(lock.lock()?),
    };
    Ok(guard.map(Into::into))
}

fn with<O: Ownership, T>(
    lock: &Lock<O>,
    wait: Wait,
    act: impl FnOnce(String, FencingToken) -> T,
) -> Result<Option<T>> {
    let act = |guard: &Guard<O>| act(guard.owner().to_string(), guard.token());
    let done = match wait {
        Wait::No => lock.try_with(act)?,
        Wait::UpTo(time) => lock.with_for(time, act)?,
        Wait::Forever => return lock.with(act).map(Some),
    };
    Ok(match done {
        TryLock::Granted(result) => Some(result),
        TryLock::Busy(_) => None,
    })
}

/// Several locks at once, named from the last to the first.
pub fn get_all(client: &Client, locks: Several, wait: Wait) -> Result<Option<AnyGuard>> {
    let names: Vec<String> = locks.iter().rev().map(name_of).collect();
    let guard = match wait {
        Wait::No => client.try_lock_all(&names)?.guard(),
        Wait::UpTo(time) => client.try_lock_all_for(&names, time)?.guard(),
        Wait::Forever => Some(client.lock_all(&names)?),
    };
    Ok(guard.map(AnyGuard::All))
}

/// The handle of an operator, who knows what kind of lock it is.
pub enum Desk {
    Exclusive(Lock),
    Shared(RwLock),
    Permits(Semaphore),
}

impl Desk {
    pub fn of(client: &Client, name: &str, kind: LockKind) -> Result<Desk> {
        Ok(match kind {
            LockKind::ReadWrite => Desk::Shared(client.rw_lock(name)?),
            LockKind::Semaphore { permits } => Desk::Permits(client.semaphore(name, permits)?),
            _ => Desk::Exclusive(client.fair_lock(name)?),
        })
    }

    pub fn inspect(&self) -> Result<LockState> {
        match self {
            Desk::Exclusive(lock) => {
                lock.is_locked()?;
                lock.inspect()
            }
            Desk::Shared(lock) => lock.inspect(),
            Desk::Permits(semaphore) => semaphore.inspect(),
        }
    }

    pub fn kick(&self, waiter: &Waiter) -> Result<bool> {
        match self {
            Desk::Exclusive(lock) => lock.kick(waiter),
            Desk::Shared(lock) => lock.kick(waiter),
            Desk::Permits(semaphore) => semaphore.kick(waiter),
        }
    }

    pub fn force(&self) -> Result<bool> {
        match self {
            Desk::Exclusive(lock) => lock.force_unlock(),
            Desk::Shared(lock) => lock.force_unlock(),
            Desk::Permits(semaphore) => semaphore.force_unlock(),
        }
    }

    pub fn force_of(&self, owner: &OwnerId) -> Result<bool> {
        match self {
            Desk::Exclusive(_) => Ok(false),
            Desk::Shared(lock) => lock.force_unlock_of(owner),
            Desk::Permits(semaphore) => semaphore.force_unlock_of(owner),
        }
    }
}
