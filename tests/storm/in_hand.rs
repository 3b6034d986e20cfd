//! What an actor has in hand: guards and requests of threads and of owners alike; and how it makes a call.

use std::sync::Arc;
use std::time::Duration;

use fairlock::crossbeam_channel::Receiver;
use fairlock::{
    Cancel, Error, FencingToken, Guard, Lock, LockGuard, LockKind, LockRequest, Lost, OwnedGuard,
    OwnedRequest, Ownership, Result, TryLock,
};

use crate::life::{Life, Shutdown};
use crate::program::{Ask, Terms, Wait};
use crate::server::name_of;
use crate::world::{Call, Limit, Using, World, locked};

pub enum AnyGuard {
    Thread(LockGuard),
    Owned(OwnedGuard),
}

pub enum Pending {
    Thread(LockRequest),
    Owned(OwnedRequest),
}

/// Makes the call, and shows that it is under way.
pub fn call<T>(
    world: &World,
    number: usize,
    what: String,
    life: &Arc<Life>,
    limit: Limit,
    cancel: &Cancel,
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

/// Shuts the client down, and notes when that began and what came of it.
pub fn shut_down(world: &World, using: &Using, number: usize) {
    let life = &using.life;
    let first = {
        let mut fate = locked(&life.fate);
        let first = fate.shutdown.is_none();
        fate.shutdown.get_or_insert(Shutdown { began: world.now(), ended: None });
        first
    };
    let result = call(world, number, "shutdown".into(), life, Limit::Patient, &Cancel::new(), || {
        using.client.shutdown()
    });
    world.note(format_args!("a{number}: shutdown of {life}: {result:?}"));
    let mut fate = locked(&life.fate);
    if let (true, Some(shutdown)) = (first, &mut fate.shutdown) {
        shutdown.ended = Some((world.now(), result.map_err(|error| error.to_string())));
    }
}

pub fn handle(using: &Using, ask: Ask) -> Result<Lock> {
    let name = name_of(ask.lock);
    let lock = match ask.kind {
        LockKind::Plain => using.client.plain_lock(&name)?,
        _ => using.client.fair_lock(&name)?,
    };
    Ok(match ask.terms {
        Terms::Renewed => lock,
        Terms::Fixed(lease) => lock.fixed_lease(lease),
        Terms::Capped(limit) => lock.max_hold(limit),
    })
}

pub fn get<O: Ownership>(lock: &Lock<O>, wait: Wait) -> Result<Option<Guard<O>>> {
    match wait {
        Wait::No => lock.try_lock().map(TryLock::guard),
        Wait::UpTo(time) => lock.try_lock_for(time).map(TryLock::guard),
        Wait::Forever => lock.lock().map(Some),
    }
}

/// How the calling thread is called: the error of an unlock in vain tells it, without a round trip.
fn thread_owner(using: &Using) -> Result<String> {
    match using.client.fair_lock("nobody takes this")?.unlock() {
        Err(Error::NotHeld { owner, .. }) => Ok(owner.to_string()),
        Err(error) => Err(error),
        Ok(()) => panic!("a lock that nobody takes was unlocked"),
    }
}

pub fn owner_of(using: &Using, ask: Ask) -> Result<String> {
    match ask.owner.and_then(|owner| using.life.owner(owner)) {
        Some(owner) => Ok(owner.id().to_string()),
        None => thread_owner(using),
    }
}

impl AnyGuard {
    pub fn token(&self) -> FencingToken {
        match self {
            AnyGuard::Thread(guard) => guard.token(),
            AnyGuard::Owned(guard) => guard.token(),
        }
    }

    pub fn owner(&self) -> String {
        match self {
            AnyGuard::Thread(guard) => guard.owner().to_string(),
            AnyGuard::Owned(guard) => guard.owner().to_string(),
        }
    }

    pub fn lost(&self) -> Receiver<Lost> {
        match self {
            AnyGuard::Thread(guard) => guard.lost().clone(),
            AnyGuard::Owned(guard) => guard.lost().clone(),
        }
    }

    pub fn unlock(self) -> Result<()> {
        match self {
            AnyGuard::Thread(guard) => guard.unlock(),
            AnyGuard::Owned(guard) => guard.unlock(),
        }
    }

    pub fn leak(self) {
        match self {
            AnyGuard::Thread(guard) => guard.leak(),
            AnyGuard::Owned(guard) => guard.leak(),
        }
    }

    pub fn bump(&mut self) -> Result<()> {
        match self {
            AnyGuard::Thread(guard) => guard.bump(),
            AnyGuard::Owned(guard) => guard.bump(),
        }
    }

    pub fn valid_for(&self) -> Duration {
        match self {
            AnyGuard::Thread(guard) => guard.valid_for(),
            AnyGuard::Owned(guard) => guard.valid_for(),
        }
    }

    pub fn renew(&self) -> Result<Duration> {
        match self {
            AnyGuard::Thread(guard) => guard.renew(),
            AnyGuard::Owned(guard) => guard.renew(),
        }
    }
}
