//! Where wake-ups arrive: finds the claim that each one is for, and wakes its callers.
//!
//! Runs on the backend's threads, or on a releaser's: it takes short mutexes and does no I/O.

use std::sync::{Arc, Weak};

use crate::backend::{Hold, LockId, RequestId, Wake, WakeSink};
use crate::claim::{Claim, GrantedBy};
use crate::error::LostCause;
use crate::ids::{FencingToken, LockKind, LockName, OwnerId};
use crate::ledger::Ledger;
use crate::logging::log_line;
use crate::shared::Shared;
use crate::stats::count;
use crate::tasks;

/// A weak reference: a backend that keeps its subscribers does not keep clients alive.
pub(crate) struct ClaimSink(pub(crate) Weak<Shared>);

impl WakeSink for ClaimSink {
    fn wake(&self, wake: Wake<'_>) {
        let Some(shared) = self.0.upgrade() else { return };
        let deliver = || match wake {
            Wake::Granted { lock, owner, request, token } => granted(&shared, lock, owner, request, token),
            Wake::Recheck { lock, owner } => recheck(&shared, lock, owner),
            Wake::Taken { lock, owner, token } => taken(&shared.ledger, lock, owner, token),
            Wake::Gap => gap(&shared),
        };
        // A backend that does not block has no thread that other wake-ups wait for.
        let was_expected = match shared.backend.is_non_blocking() {
            true => deliver(),
            false => shared.timers.wake_elsewhere(shared.now(), deliver),
        };
        if !was_expected {
            count(&shared.ledger.counters.wake_ups_ignored);
            log_line!(debug, "fairlock::wake",
                event = "ignored";
                "ignored a wake-up that is for no waiting request"
            );
        }
    }
}

/// A grant is believed only by the request that waits: a late, repeated or forged message names another request.
fn granted(shared: &Shared, lock: &str, owner: &str, request: RequestId, token: FencingToken) -> bool {
    let ledger = &shared.ledger;
    let known = ledger.registry.get(lock, owner).filter(|claim| claim.request == request);
    let Some(claim) = known else {
        // A heartbeat's answer may be quicker than the message, and the hold may be over before the message arrives.
        let was_known = LockName::new(lock).is_ok_and(|lock| ledger.counters.told_too_late(&lock, request))
            || ledger.counters.crossing.lock().knew(request);
        if !was_known {
            release_stray_grant(shared, lock, owner, request, token);
        }
        return was_known;
    };
    // The claim is held; or the server is being told of its end, and finds the grant.
    if !claim.is_waiting() {
        return ledger.counters.told_too_late(&claim.lock.name, request);
    }
    if claim.pushed(token, shared.now()) {
        ledger.granted(&claim, GrantedBy::WakeUp);
    } else {
        // Either the claim keeps the push until the answer comes, or the push came too late: then the claim asks.
        ledger.wake_claim(&claim);
    }
    true
}

/// This client does not know the request: it was withdrawn, and its ask reached the server after that. The lock would be
/// idle until its lease ends. The watchdog releases it by owner, request and token, so no other hold is touched.
fn release_stray_grant(shared: &Shared, lock: &str, owner: &str, request: RequestId, token: FencingToken) {
    let Ok(name) = LockName::new(lock) else { return };
    // If the client has ended, or its watchdog can't be started, the lease ends the grant. A running shutdown releases it: one
    // withdrawal may let the store grant another place that is to be withdrawn too.
    let now = shared.now();
    let has_ended = shared.ended.lock().is_some();
    if has_ended
        || !shared.ledger.counters.crossing.lock().may_return(request, now)
        || shared.timers.start_watchdog().is_err()
    {
        return;
    }
    let owner = OwnerId::new(owner);
    // The message does not tell the kind. A release names the hold, and ends it whichever kind it names, unless the backend has to
    // be told that a hold may take a part: so it is.
    let kinds = [LockKind::ReadWrite, LockKind::Fair];
    let kind = kinds.into_iter().find(|kind| shared.backend.supports(*kind)).unwrap_or(LockKind::Fair);
    let lock = LockId::new(name, kind);
    let stray = Claim::of_stray_grant(&Hold::new(&lock, &owner, request, token), &shared.config, now);
    shared.ledger.release_soon(&Arc::new(stray));
}

fn recheck(shared: &Shared, lock: &str, owner: Option<&str>) -> bool {
    let ledger = &shared.ledger;
    let claim = match owner {
        Some(owner) => ledger.registry.get(lock, owner),
        // One is enough: a claim that was woken and leaves without the lock passes the wake-up on.
        None => ledger.registry.any(lock, Claim::is_waiting),
    };
    claim.is_some_and(|claim| {
        if claim.wake() {
            tasks::ask_again(shared, &claim);
        }
        true
    })
}

fn taken(ledger: &Ledger, lock: &str, owner: &str, token: FencingToken) -> bool {
    let Some(claim) = ledger.registry.get(lock, owner) else { return false };
    if claim.taken_early(token) {
        return true;
    }
    if claim.token() != Some(token) {
        return false;
    }
    ledger.lose(&claim, LostCause::Taken);
    true
}

/// Every place and hold is renewed at once: a renewal finds grants, and hands on a lock that is free.
fn gap(shared: &Shared) -> bool {
    count(&shared.ledger.counters.gaps);
    log_line!(debug, "fairlock::wake",
        event = "gap";
        "wake-ups may have been missed: all holds and places are renewed now"
    );
    let now = shared.now();
    for claim in shared.ledger.registry.all() {
        claim.renew_at_once(now);
    }
    for kind in [&shared.outage.renewals, &shared.outage.asks, &shared.backlog.retries] {
        kind.hurry(now); // the server probably answers again
    }
    shared.timers.due_by(Some(now));
    true
}
