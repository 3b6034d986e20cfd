//! Where wake-ups arrive: finds the waiter that each one is for, and wakes him.
//!
//! Runs on the backend's threads, or on that of a releaser: it takes short mutexes and does no I/O.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::backend::{LockId, RequestId, Wake, WakeSink};
use crate::claim::Claim;
use crate::say::say;
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
            say(|| {
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
        if !self.is_running() || !self.counters.may_return(request, now) || self.watchdog.start(self).is_err()
        {
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
        say(|| {
            log::info!(target: "fairlock::wake", event = "gap"; "wake-ups may have been missed: all are looked after");
        });
        let now = self.now();
        for claim in self.registry.all() {
            claim.look_after(now);
        }
        self.watchdog.hurry(now);
        true
    }

    /// Also passes a wake-up on that was for any waiter of a plain lock.
    pub(crate) fn pass_on(&self, claim: &Claim) {
        if claim.lock.kind == crate::LockKind::Plain
            && let Some(other) = self.registry.any(claim.lock.name.as_str(), Claim::is_waiting)
        {
            self.wake_claim(&other);
        }
    }

    /// The claim waits no longer, so another one of this client looks when it would have looked without a wake-up: where
    /// waiters stand in line the server tells only the first of a client when the holder's lease ends.
    pub(crate) fn pass_look_on(&self, claim: &Claim) {
        self.look_by(claim, claim.take_look());
    }

    /// Has another claim of this client on the same lock look then. Who waits for a plain lock knows by itself.
    pub(crate) fn look_by(&self, claim: &Claim, at: Option<Instant>) {
        // Those that have no place yet are told with the answer that gives them one.
        if let Some(time) = at
            && claim.lock.kind == crate::LockKind::Fair
            && self.registry.any(claim.lock.name.as_str(), |other| other.look_by(time)).is_some()
        {
            self.watchdog.due_by(at);
        }
    }

    fn wake_claim(&self, claim: &Arc<Claim>) {
        if claim.wake() {
            self.watchdog.due_by(Some(self.now()));
        }
    }

    fn find(&self, lock: &str, owner: &str) -> Option<Arc<Claim>> {
        self.registry.get(lock, owner)
    }
}
