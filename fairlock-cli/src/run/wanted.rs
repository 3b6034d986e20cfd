//! What a program runs under: a lock of one of the kinds, for an owner of its own.

use fairlock::{
    Client, Lock, LockKind, LockState, OwnedGuard, OwnedLock, OwnedRequest, Result, Semaphore, TryLock,
};

use crate::args::Run;

pub(super) enum Wanted {
    Lock(OwnedLock),
    Permit(Semaphore),
}

impl Wanted {
    pub(super) fn new(client: &Client, options: &Run) -> Result<Wanted> {
        let (kind, name, limit) = (&options.kind, &options.name, options.max_hold);
        if let Some(permits) = kind.permits {
            let semaphore = client.semaphore(name, permits)?;
            return Ok(Wanted::Permit(
                limit.map_or_else(|| semaphore.clone(), |limit| semaphore.max_hold(limit)),
            ));
        }
        let lock: Lock = match kind.of_lock() {
            LockKind::ReadWrite if kind.shared => client.rw_lock(name)?.reader().clone(),
            LockKind::ReadWrite => client.rw_lock(name)?.writer().clone(),
            LockKind::Plain => client.plain_lock(name)?,
            _ => client.fair_lock(name)?,
        };
        let lock = limit.map_or_else(|| lock.clone(), |limit| lock.max_hold(limit));
        Ok(Wanted::Lock(lock.owned_by(&client.new_owner())?))
    }

    pub(super) fn try_lock(&self) -> Result<TryLock<OwnedGuard>> {
        match self {
            Wanted::Lock(lock) => lock.try_lock(),
            Wanted::Permit(semaphore) => semaphore.try_acquire(),
        }
    }

    pub(super) fn request(&self) -> Result<OwnedRequest> {
        match self {
            Wanted::Lock(lock) => lock.request(),
            Wanted::Permit(semaphore) => semaphore.request(),
        }
    }

    /// Its holders, and the length of the line.
    pub(super) fn state(&self) -> Result<LockState> {
        match self {
            Wanted::Lock(lock) => lock.inspect_line(0..0),
            Wanted::Permit(semaphore) => semaphore.inspect_line(0..0),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Wanted::Lock(lock) => lock.name(),
            Wanted::Permit(semaphore) => semaphore.name(),
        }
    }

    /// Whether a waiter has a place in a line.
    pub(super) fn has_line(&self) -> bool {
        !matches!(self, Wanted::Lock(lock) if lock.kind() == LockKind::Plain)
    }
}
