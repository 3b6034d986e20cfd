//! What a program runs under: a lock of one of the kinds, or several fair locks, of a new owner. Here are the wanted locks, the holds on them,
//! and the outer commands, which may keep a lock from this command.
//!
//! Several locks are taken by the rules of `Client::lock_all`: in the order of the bytes of their names, so that commands and
//! programs never wait for each other; and all are given back if one can't be had, or is lost before the last grant.
//! `Client::lock_all` itself is not used: a signal has to end the wait, the progress line shows the rank, and the minder gets
//! each hold when it is granted.
//!
//! **A command inside the program of another one** that holds the same lock would wait for ever, since the other waits for it.
//!
//! Each command passes its owner, and the owners of the commands around it, to its program. An owner is unique in the world: a
//! lock of the same name on another server has other owners, and so has a lock that the outer command has released.
//!
//! | the outer command has | the inner one wants | |
//! | --- | --- | --- |
//! | a fair or plain lock | the same | it can't have it |
//! | to read | to write; or a writer is ahead | refused; or until the writer gives up |
//! | to read | to read | it gets it |
//! | to write | to read or write | it can't have it |
//! | one of N permits | one permit | granted when a permit is free, if the outer commands have less than N |

use std::ops::Range;
use std::time::{Duration, Instant};

use fairlock::admin::{Holder, LockKind, LockState, Waiter};
use fairlock::owner::Owner;
use fairlock::waits::crossbeam_channel_0_5::Receiver;
use fairlock::waits::{Request, UnlessCrowded, UnlessGranted};
use fairlock::{Client, Guard, Lock, Lost, Result, Semaphore, TryLock};

use crate::args::Run;
use crate::process::Failure;
use crate::words::{capacity, escaped, how_long, name_of};

/// # Errors
/// For several names, and a kind or a condition that is for one.
pub(super) fn check(options: &Run) -> Result<(), Failure> {
    let condition = options.every.map(|_| "--every").or(options.most_waiting.map(|_| "--most-waiting"));
    match (names(options).len(), options.kind.option().or(condition)) {
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
    Lock(Lock<Owner>, u32),
    /// Unless it was granted in this period.
    Every(Lock<Owner>, UnlessGranted<Lock<Owner>>),
    /// Unless too many wait.
    MostWaiting(Lock<Owner>, UnlessCrowded<Lock<Owner>>, u32),
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
        let lock = lock.owned_by(owner)?;
        if let Some(period) = options.every {
            let unless = lock.every(period)?;
            return Ok(Wanted::Every(lock, unless));
        }
        Ok(match options.most_waiting {
            Some(most) => {
                let unless = lock.most_waiting(most)?;
                Wanted::MostWaiting(lock, unless, units)
            }
            None => Wanted::Lock(lock, units),
        })
    }

    pub(super) fn try_lock(&self) -> Result<TryLock<Guard<Owner>>> {
        match self {
            Wanted::Lock(lock, _) | Wanted::MostWaiting(lock, ..) => lock.try_lock(),
            Wanted::Every(_, unless) => unless.try_lock(),
            Wanted::Permit(semaphore) => semaphore.try_acquire(),
        }
    }

    pub(super) fn request(&self) -> Result<Request<Owner>> {
        match self {
            Wanted::Lock(lock, _) | Wanted::Every(lock, _) => lock.request(),
            Wanted::MostWaiting(_, unless, _) => unless.request(),
            Wanted::Permit(semaphore) => semaphore.request(),
        }
    }

    /// Its holders, the length of the queue, and this part of it.
    pub(super) fn look(&self, part: Range<u64>) -> Result<LockState> {
        match self {
            Wanted::Lock(lock, _) | Wanted::Every(lock, _) | Wanted::MostWaiting(lock, ..) => {
                lock.admin().inspect_queue(part)
            }
            Wanted::Permit(semaphore) => semaphore.admin().inspect_queue(part),
        }
    }

    /// How many units the lock has for the program.
    fn capacity(&self, state: &LockState) -> u32 {
        match self {
            Wanted::Permit(semaphore) => semaphore.permits(),
            _ => state.capacity.unwrap_or(1),
        }
    }

    /// How many of the lock's units the program gets.
    pub(super) fn units(&self) -> u32 {
        match self {
            Wanted::Lock(_, units) | Wanted::MostWaiting(.., units) => *units,
            Wanted::Every(..) | Wanted::Permit(_) => 1,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Wanted::Lock(lock, _) | Wanted::Every(lock, _) | Wanted::MostWaiting(lock, ..) => lock.name(),
            Wanted::Permit(semaphore) => semaphore.name(),
        }
    }
}

/// In the order in which they were granted.
#[derive(Debug, Default)]
pub(super) struct Holds(Vec<(Guard<Owner>, Instant)>);

impl Holds {
    pub(super) fn add(&mut self, guard: Guard<Owner>) {
        self.0.push((guard, Instant::now()));
    }

    pub(super) fn guards(&self) -> impl Iterator<Item = &Guard<Owner>> {
        self.0.iter().map(|(guard, _)| guard)
    }

    /// For how long the first of them is held.
    pub(super) fn held_for(&self) -> Duration {
        self.0.first().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    /// How long all of them are certain.
    pub(super) fn valid_for(&self) -> Duration {
        self.guards().map(|guard| guard.valid_for()).min().unwrap_or(Duration::ZERO)
    }

    /// Renews all, and returns how long they are certain.
    ///
    /// # Errors
    /// That of the first that was not renewed.
    pub(super) fn renew(&self) -> Result<Duration> {
        self.guards().try_for_each(|guard| guard.renew().map(drop))?;
        Ok(self.valid_for())
    }

    /// Whether one of them is lost. What is told as lost may also be a grant that ended before this process took it.
    pub(super) fn are_lost(&self) -> bool {
        self.guards().any(|guard| guard.is_lost())
    }

    /// A channel for the loss of each.
    pub(super) fn losses(&self) -> Vec<Receiver<Lost>> {
        self.guards().map(|guard| guard.lost().as_crossbeam().clone()).collect()
    }
}

/// How long a script may run on after it has started a command in the background that is to run after the outer command: such a
/// script is no deadlock.
pub(super) const HESITATION: Duration = Duration::from_millis(500);

/// The owners of the outer commands, the innermost last.
pub(super) struct Outer(Vec<String>);

impl Outer {
    /// Those that this process was told. A script that takes FAIRLOCK_OWNER out of the environment takes all of them.
    pub(super) fn of_environment() -> Outer {
        let told = |name: &str| std::env::var(name).unwrap_or_default();
        let mut owners = told("FAIRLOCK_OWNER");
        if !owners.is_empty() {
            owners = format!("{} {owners}", told("FAIRLOCK_OUTER"));
        }
        Outer(owners.split_whitespace().map(str::to_owned).collect())
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// For the environment of a program.
    pub(super) fn words(&self) -> String {
        self.0.join(" ")
    }

    /// Why this lock can't be had before an outer command has ended, if so.
    ///
    /// A wait `for_ever` also ends behind a waiter that an outer command keeps from the lock. A wait with a limit goes on: the
    /// waiter ahead may give up.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub(super) fn keep_it(
        &self,
        lock: &Wanted,
        ahead: Option<u64>,
        for_ever: bool,
    ) -> Result<Option<Failure>> {
        if self.are_none() {
            return Ok(None);
        }
        let state = lock.look(0..ahead.filter(|_| for_ever).unwrap_or(0))?;
        Ok(self.keep(lock, &state))
    }

    fn keep(&self, lock: &Wanted, state: &LockState) -> Option<Failure> {
        let is_outer = |holder: &&Holder| self.0.iter().any(|owner| owner == holder.owner.as_str());
        let holder = state.holders.iter().find(is_outer)?;
        let taken: u64 = state.holders.iter().filter(is_outer).map(|holder| u64::from(holder.units)).sum();
        let name = escaped(lock.name());
        let since = how_long(",", holder.held_for);
        let outer =
            format!("the command that this one runs under, {}{since}", name_of(&holder.label, &holder.owner));
        if taken + u64::from(lock.units()) > u64::from(lock.capacity(state)) {
            let what = format!("{name} is held by {outer}: they would wait for each other");
            return Some(Failure::ours(what));
        }
        let has_room =
            |waiter: &Waiter| taken + u64::from(waiter.units) <= u64::from(capacity(state, waiter));
        let stuck = state.queue.iter().find(|waiter| !waiter.is_absent() && !has_room(waiter))?;
        let first = name_of(&stuck.label, &stuck.owner);
        Some(Failure::ours(format!(
            "{name}: {first} is ahead, and waits for {outer}: all would wait for ever"
        )))
    }
}
