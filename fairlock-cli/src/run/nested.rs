//! A command inside the program of another one that holds the same lock: it would wait for ever, since the other waits for it.
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

use std::time::Duration;

use fairlock::{Holder, LockState, Result};

use super::wanted::Wanted;
use crate::duration;
use crate::exit::Failure;
use crate::kind::holder_name;
use crate::names::escaped;

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
        // A lock that is kept after its program (`--at-least`) ends by itself.
        let is_outer = |holder: &&Holder| {
            holder.hold_count > 0 && self.0.iter().any(|owner| owner == holder.owner.as_str())
        };
        let holder = state.holders.iter().find(is_outer)?;
        let taken = state.holders.iter().filter(is_outer).map(|holder| u64::from(holder.units)).sum();
        let most = capacity(state).saturating_sub(taken);
        let name = escaped(lock.name());
        let outer = format!("the command that this one runs under, {}", named(holder));
        if u64::from(lock.units()) > most {
            let what = format!("{name} is held by {outer}: they would wait for each other");
            return Some(Failure::ours(what));
        }
        let stuck =
            state.queue.iter().find(|waiter| !waiter.is_absent() && u64::from(waiter.units) > most)?;
        let first = escaped(stuck.label.as_deref().unwrap_or_else(|| stuck.owner.as_str()));
        Some(Failure::ours(format!(
            "{name}: {first} is ahead, and waits for {outer}: all would wait for ever"
        )))
    }
}

/// The units of the lock.
fn capacity(state: &LockState) -> u64 {
    state.capacity.map_or(1, u64::from)
}

fn named(holder: &Holder) -> String {
    let since = holder.held_for.map(|time| format!(", for {}", duration::show(time)));
    holder_name(holder) + &since.unwrap_or_default()
}
