//! Where wake-ups arrive: finds the waiter that each one is for, and wakes him.
//!
//! Runs on the backend's threads, or on that of a releaser: it takes short mutexes and does no I/O.

use std::sync::{Arc, Weak};

use crate::backend::{LockId, RequestId, Wake, WakeSink};
use crate::claim::Claim;
use crate::logging::log_safely;
use crate::shared::Shared;
use crate::stats::count;
use crate::time::Signal;
use crate::{FencingToken, LockKind, LockName, LostCause, OwnerId};

/// Weak, so that a backend that keeps its subscribers does not keep clients alive.
pub(crate) struct Sink(pub(crate) Weak<Shared>);

impl WakeSink for Sink {
    fn wake(&self, wake: Wake<'_>) {
        let Some(shared) = self.0.upgrade() else { return };
        let heeded = match wake {
            Wake::Granted { lock, owner, request, token } => shared.wake_granted(lock, owner, request, token),
            Wake::Recheck { lock, owner } => shared.wake_to_recheck(lock, owner),
            Wake::Taken { lock, owner, token } => shared.wake_taken(lock, owner, token),
            Wake::Gap => shared.wake_after_gap(),
        };
        if !heeded {
            count(&shared.counters.wake_ups_ignored);
            log_safely(|| {
                log::debug!(target: "fairlock::wake", event = "ignored"; "a wake-up is for no request that waits");
            });
        }
    }
}

impl Shared {
    /// Believed only for the very request that waits: a late, repeated or forged message names another.
    fn wake_granted(
        self: &Arc<Self>,
        lock: &str,
        owner: &str,
        request: RequestId,
        token: FencingToken,
    ) -> bool {
        let known = self.find(lock, owner).filter(|claim| claim.request == request);
        let Some(claim) = known else {
            // A heartbeat's answer may be quicker than the message, and the hold be over before it is here.
            let was_known = self.counters.told_too_late(request) || self.counters.knew_by_answer(request);
            if !was_known {
                self.return_grant(lock, owner, request, token);
            }
            return was_known;
        };
        // It is held, or its end is being told to the server, which finds the grant.
        if !claim.is_waiting() {
            return self.counters.told_too_late(request);
        }
        match claim.pushed(token, self.now()) {
            Some(by) => self.granted(&claim, by),
            // Kept for the answer that it overtook, or too late: then it is a reason to look.
            None => self.wake_claim(&claim),
        }
        true
    }

    /// Nobody here knows of this request: it was withdrawn, and its ask arrived at the server after that. The lock would
    /// stand idle until its lease ends. The watchdog gives it back, by owner, request and token: whatever else these
    /// names may mean at the server by then, that is not touched.
    fn return_grant(self: &Arc<Self>, lock: &str, owner: &str, request: RequestId, token: FencingToken) {
        let Ok(name) = LockName::new(lock) else { return };
        // A client whose thread can't be started, or is over, leaves it to the lease.
        let now = self.now();
        if !self.is_running() || !self.counters.may_return(request, now) || self.start_watchdog().is_err() {
            return;
        }
        let (lock, signal) = (LockId::new(name, LockKind::Fair), Signal::new(&self.config.clock));
        let owner = OwnerId::new(owner);
        let stray = Claim::of_stray_grant(lock, owner, request, token, &self.config, signal, now);
        self.release_soon(&Arc::new(stray));
    }

    fn wake_to_recheck(&self, lock: &str, owner: Option<&str>) -> bool {
        let claim = match owner {
            Some(owner) => self.find(lock, owner),
            // Whoever is woken passes it on when he leaves without the lock, so one is enough.
            None => self.registry.any(lock, Claim::is_waiting),
        };
        claim.is_some_and(|claim| {
            self.wake_claim(&claim);
            true
        })
    }

    fn wake_taken(&self, lock: &str, owner: &str, token: FencingToken) -> bool {
        let Some(claim) = self.find(lock, owner) else { return false };
        if claim.token() != Some(token) {
            return false;
        }
        self.lose(&claim, LostCause::Taken);
        true
    }

    /// Every place and hold is looked after at once: a renewal finds grants, and hands on if the lock is free.
    fn wake_after_gap(&self) -> bool {
        count(&self.counters.gaps);
        log_safely(|| {
            log::info!(target: "fairlock::wake", event = "gap"; "wake-ups may have been missed: all are looked after");
        });
        let now = self.now();
        for claim in self.registry.all() {
            claim.renew_at_once(now);
        }
        self.schedule.hurry(now);
        true
    }

    fn find(&self, lock: &str, owner: &str) -> Option<Arc<Claim>> {
        self.registry.get(lock, owner)
    }
}
