//! What a program runs under: a lock of one of the kinds, or several fair locks, for a new owner.
//!
//! Several locks are taken by the rules of `Client::lock_all`: in the order of the bytes of their names, so that commands and
//! programs never wait for each other; and all are given back if one can't be had, or is lost before the last grant.
//! `Client::lock_all` itself is not used: a signal has to end the wait, the progress line shows the rank, and the minder gets
//! each hold when it is granted.

use std::ops::Range;

use fairlock::{
    Client, Lock, LockKind, LockState, OwnedGuard, OwnedLock, OwnedRequest, Owner, Result, Semaphore, TryLock,
};

use crate::args::Run;
use crate::exit::Failure;

/// # Errors
/// For several names, and a kind that only one may have.
pub(super) fn check(options: &Run) -> Result<(), Failure> {
    match (names(options).len(), options.kind.option()) {
        (0 | 1, _) | (_, None) => Ok(()),
        (several, Some(option)) => {
            let what =
                format!("{option} is for one name, and there are {several}: several are taken as fair locks");
            Err(Failure::ours(what))
        }
    }
}

/// Each name once, in the order in which the locks are taken.
pub(super) fn names(options: &Run) -> Vec<&str> {
    let mut names: Vec<&str> = options.names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// In the order in which they are taken.
pub(super) fn all(client: &Client, options: &Run) -> Result<Vec<Wanted>> {
    let owner = client.new_owner();
    names(options).into_iter().map(|name| Wanted::new(client, options, name, &owner)).collect()
}

pub(super) enum Wanted {
    /// With the units that the program gets.
    Lock(OwnedLock, u32),
    Permit(Semaphore),
}

impl Wanted {
    fn new(client: &Client, options: &Run, name: &str, owner: &Owner) -> Result<Wanted> {
        let (kind, limit) = (&options.kind, options.max_hold);
        if let Some(permits) = kind.permits {
            let semaphore = client.semaphore(name, permits)?;
            return Ok(Wanted::Permit(
                limit.map_or_else(|| semaphore.clone(), |limit| semaphore.max_hold(limit)),
            ));
        }
        let (lock, units): (Lock, u32) = match kind.of_lock() {
            LockKind::ReadWrite if kind.shared => (client.rw_lock(name)?.reader().clone(), 1),
            LockKind::ReadWrite => (client.rw_lock(name)?.writer().clone(), u32::MAX),
            LockKind::Plain => (client.plain_lock(name)?, 1),
            _ => (client.fair_lock(name)?, 1),
        };
        let lock = limit.map_or_else(|| lock.clone(), |limit| lock.max_hold(limit));
        Ok(Wanted::Lock(lock.owned_by(owner)?, units))
    }

    pub(super) fn try_lock(&self) -> Result<TryLock<OwnedGuard>> {
        match self {
            Wanted::Lock(lock, _) => lock.try_lock(),
            Wanted::Permit(semaphore) => semaphore.try_acquire(),
        }
    }

    pub(super) fn request(&self) -> Result<OwnedRequest> {
        match self {
            Wanted::Lock(lock, _) => lock.request(),
            Wanted::Permit(semaphore) => semaphore.request(),
        }
    }

    /// Its holders, the length of the queue, and this part of it.
    pub(super) fn look(&self, part: Range<u64>) -> Result<LockState> {
        match self {
            Wanted::Lock(lock, _) => lock.inspect_queue(part),
            Wanted::Permit(semaphore) => semaphore.inspect_queue(part),
        }
    }

    /// How many of the lock's units the program gets.
    pub(super) fn units(&self) -> u32 {
        match self {
            Wanted::Lock(_, units) => *units,
            Wanted::Permit(_) => 1,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Wanted::Lock(lock, _) => lock.name(),
            Wanted::Permit(semaphore) => semaphore.name(),
        }
    }
}
