//! Before the end of a client: waits end, no lock is granted any more, and holders finish their work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::end;
use crate::backlog::Backlog;
use crate::claim::{AfterGivingUp, Claim};
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::shared::Shared;
use crate::snapshot::HeldLock;
use crate::time::{Raise, Woken};

/// Waits `at_most` so long until all holds are given back, and then shuts the client down within `limit`. Returns the holds
/// that were cut off, by whichever call.
///
/// # Errors
/// As [`shut_down`](super::shut_down); `Shutdown` if another call does that, and takes longer than `limit`.
pub(crate) fn drain(shared: &Shared, at_most: Duration, limit: Duration) -> Result<Vec<HeldLock>> {
    let _here = shared.config.clock.attend();
    let until = shared.now().checked_add(at_most);
    shared.config.stop.close();
    let not_told = end_waits(shared, until);
    let signal = &shared.ledger.ending.signal;
    loop {
        // Read first: a hold that is given back after that ends the sleep at once.
        let seen = signal.generation();
        if shared.config.stop.is_stopped()
            || is_drained(&shared.ledger, &shared.backlog)
            || signal.wait(seen, until) == Woken::TimeOut
        {
            break;
        }
    }
    let until = shared.now() + limit;
    let _ = end(shared, limit, &not_told); // it is kept
    loop {
        let seen = signal.generation();
        if let Some(ended) = shared.ledger.ending.ended() {
            return ended.cut_off();
        }
        // Another call is at it.
        if signal.wait_at_the_end(seen, until) == Woken::TimeOut {
            return Err(Error::Shutdown { lock: None });
        }
    }
}

/// Fails all waits, and has their requests withdrawn by the watchdog, which goes on. Returns those that it must not withdraw
/// yet: a call that is under way could make their places anew.
fn end_waits(shared: &Shared, until: Option<Instant>) -> Vec<Arc<Claim>> {
    // A claim that is made from here on is not in this list. Its maker reads `stop` once it is in the registry, and gives it
    // up.
    let mut waited = shared.ledger.registry.all();
    waited.retain(|claim| {
        let after = claim.fail_for_shutdown();
        if after == Some(AfterGivingUp::Nothing) {
            shared.ledger.retire(claim);
        }
        // Also of claims that leave: a later call of the same owner may sleep on them. And of holds: a leader steps down.
        Raise::raise(&**claim);
        after == Some(AfterGivingUp::Withdraw)
    });
    // First those about which no call is under way: they need not wait for the others.
    for until in [Some(shared.now()), until] {
        waited.retain(|claim| {
            let is_quiet = is_quiet_by(claim, until);
            if is_quiet {
                shared.ledger.withdraw_soon(claim);
            }
            !is_quiet
        });
    }
    waited
}

/// Waits for the calls about its place that are under way.
fn is_quiet_by(claim: &Claim, until: Option<Instant>) -> bool {
    loop {
        let seen = claim.signal.generation();
        if !claim.may_make_a_place() {
            return true;
        }
        if claim.config.stop.is_stopped() || claim.signal.wait(seen, until) == Woken::TimeOut {
            return false;
        }
    }
}

/// Whether all holds are given back, all requests withdrawn, and the server knows. A request that is only to be withdrawn once
/// more, when nothing of it can arrive any more, is left to the shutdown.
fn is_drained(ledger: &Ledger, backlog: &Backlog) -> bool {
    let later = backlog.later();
    let is_later = |claim: &Claim| later.iter().any(|later| std::ptr::eq(&**later, claim));
    let is_open = ledger.registry.has(|claim| claim.is_open() && !is_later(claim));
    // Read last: a hold that was found to be lost counts until that is reported.
    !is_open && backlog.len() == 0 && ledger.ending.all_reported()
}
