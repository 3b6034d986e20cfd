//! What a program runs under: a lock of one of the kinds, or several fair locks, for a new owner.
//!
//! Several are taken one after the other, by the rules of `Client::lock_all`: in the order of the bytes of their names, so that no
//! commands and no programs that do so wait for each other; and all are given back if one can't be had, or if one is lost before
//! the last is granted. It is not that call: a signal has to end the wait, the progress line shows the rank, and the minder gets each
//! hold when it is granted.

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
    Lock(OwnedLock),
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
        let lock: Lock = match kind.of_lock() {
            LockKind::ReadWrite if kind.shared => client.rw_lock(name)?.reader().clone(),
            LockKind::ReadWrite => client.rw_lock(name)?.writer().clone(),
            LockKind::Plain => client.plain_lock(name)?,
            _ => client.fair_lock(name)?,
        };
        let lock = limit.map_or_else(|| lock.clone(), |limit| lock.max_hold(limit));
        Ok(Wanted::Lock(lock.owned_by(owner)?))
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
