//! What is done when a hold or a wait of a client begins or ends, whichever thread learns of that.
//!
//! The words for an end, in this module and in those above:
//!
//! | word | means |
//! | --- | --- |
//! | *unlock* | a holder gives up one hold; the last one is released |
//! | *release* | the server is told that a hold is given up |
//! | *keep* | the server is told that a hold is given up, and that its lock stays taken for a time |
//! | *withdraw* | the server is told that a request is given up |
//! | *give up* | a caller stops waiting; the last one has the request withdrawn |
//! | *lose* | a hold is over against its holder's will, and that is reported |
//! | *retire* | nothing of the claim is left, here or at the server |
//!
//! A network can deliver an attempt after its repeat was answered, and even after the request was withdrawn or its hold released.
//! The server would then make a place, or grant the lock, for nobody. The server refuses an attempt after its end, see
//! [`Backend::attempt_ttl`](crate::backend::Backend::attempt_ttl). So the request is withdrawn once more after this end, and a
//! grant is released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Acquired, Answer, Backend, BackendError, Renewal};
use crate::backlog::{Backlog, Cleanup, PendingCleanup};
use crate::claim::{Claim, Grant, GrantedBy, Loss};
use crate::config::Config;
use crate::ending::Ending;
use crate::error::{Error, Lost, LostCause};
use crate::ids::{FencingToken, LockKind};
use crate::logging::{log_line, ms};
use crate::losses::{LossCallbacks, Unlogged, log_loss};
use crate::registry::Registry;
use crate::stats::Counters;
use crate::timers::Timers;

/// The claims, and all that is told of their ends. Makes no call to the server.
pub(crate) struct Ledger {
    pub(crate) registry: Registry,
    pub(crate) counters: Counters,
    pub(crate) loss_callbacks: LossCallbacks,
    pub(crate) unlogged: Unlogged,
    pub(crate) ending: Ending,
    config: Arc<Config>,
    timers: Arc<Timers>,
    backlog: Arc<Backlog>,
    /// Says whether places are named by owners alone.
    backend: Arc<dyn Backend>,
}

impl Ledger {
    pub(crate) fn new(
        config: &Arc<Config>,
        backend: &Arc<dyn Backend>,
        timers: &Arc<Timers>,
        backlog: &Arc<Backlog>,
        counters: Counters,
    ) -> Ledger {
        Ledger {
            registry: Registry::default(),
            counters,
            loss_callbacks: LossCallbacks::default(),
            unlogged: Unlogged::default(),
            ending: Ending::new(&config.clock),
            config: Arc::clone(config),
            timers: Arc::clone(timers),
            backlog: Arc::clone(backlog),
            backend: Arc::clone(backend),
        }
    }

    /// A claim has become a hold: it is counted, its callers are woken, and the watchdog looks after it.
    ///
    /// The grant is counted first: a caller that has the lock finds the grant in the statistics. The rest does not delay the
    /// caller, which wakes the watchdog itself before its call returns.
    pub(crate) fn granted(&self, claim: &Claim, by: GrantedBy) {
        let Grant { token, waited, due_at, ends_at, recheck_at } = claim.take_grant();
        self.counters.granted(&claim.lock, claim.request, by, waited);
        claim.raise();
        self.timers.due_by(due_at);
        self.timers.ends_by(ends_at);
        self.recheck_by(claim, recheck_at);
        self.counters.meter_grant(&claim.lock, by, waited, claim.terms.own_end());
        let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*claim.config.label);
        log_line!(debug, "fairlock::acquire",
            event = "granted", lock = lock.as_str(), owner = owner.as_str(), label = label,
            token = token.get(), by = by.name(), waited_ms = ms(waited);
            "lock {lock} granted to {label} after {waited:.1?}, token {token} ({owner})"
        );
    }

    /// A hold is lost: that is reported and logged.
    pub(crate) fn lose(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.report_loss(claim, cause) {
            log_loss(&lost);
        }
    }

    /// Reports a loss: to the claim's flag and the channels first, then to the callbacks. Each loss is reported here and only
    /// here, but for those of a shutdown. The result has to be logged.
    pub(crate) fn report_loss(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let lost = self.ending.reporting(|| {
            let lost = self.mark_lost(claim, cause)?;
            self.loss_callbacks.report(&lost);
            Some(lost)
        });
        self.tell_end();
        lost
    }

    /// Reports a loss to all but the callbacks and the log.
    pub(crate) fn mark_lost(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let held_for = claim.held_for(self.config.now());
        let Loss { lost, was_leaving } = claim.lose(cause)?;
        // A claim that is being released stays until the server was told: the owner's next request waits for that.
        let is_leaving = claim.leaving().is_some();
        if !is_leaving {
            self.forget(claim);
        }
        self.registry.remember_lost_leak(claim);
        self.counters.lost(&claim.lock);
        claim.raise();
        self.counters.meter_loss(&claim.lock, cause);
        // The end of a leaving claim was counted at the unlock. A claim that leaves only now, since its waiters were told of
        // the loss, counts nothing more.
        if let Some(time) = held_for.filter(|_| !was_leaving) {
            self.counters.held(&claim.lock, time);
        }
        Some(lost)
    }

    /// Reports the loss at once, and has the watchdog log it after its renewals: ten thousand lines to a slow logger must not take
    /// the time of the renewals.
    pub(crate) fn lose_in_background(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.report_loss(claim, cause) {
            self.unlogged.keep(lost);
        }
    }

    /// Marks an expired hold as lost, unless another thread has. Returns the loss, even if it was reported before.
    pub(crate) fn lose_if_expired(&self, claim: &Arc<Claim>) -> Option<Lost> {
        let lost = claim.loss(self.config.now())?;
        self.lose(claim, lost.cause);
        Some(lost)
    }

    /// The server says that another client has the lock, or none.
    pub(crate) fn lose_taken(&self, claim: &Arc<Claim>) -> Error {
        self.lose(claim, LostCause::Taken);
        claim.loss(self.config.now()).map_or_else(|| claim.not_held(), Error::Lost)
    }

    /// Has the watchdog release what the claim holds.
    pub(crate) fn release_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Cleanup::Release);
    }

    /// Has the watchdog withdraw the claim's request.
    pub(crate) fn withdraw_soon(&self, claim: &Arc<Claim>) {
        self.leave_to_watchdog(claim, Cleanup::Withdraw);
        self.recheck_by(claim, claim.take_recheck());
    }

    pub(crate) fn leave_to_watchdog(&self, claim: &Arc<Claim>, cleanup: Cleanup) {
        let now = self.config.now();
        self.backlog.add(claim, cleanup, now);
        self.timers.due_by(Some(now));
    }

    /// Nothing of the claim is left, here or at the server.
    pub(crate) fn retire(&self, claim: &Arc<Claim>) {
        claim.retire();
        self.forget(claim);
        claim.raise();
        self.tell_end();
    }

    /// A hold or a wait is over: a drain and a shutdown wait until all are.
    fn tell_end(&self) {
        if self.config.stop.is_closed() {
            self.ending.signal.raise();
        }
        if self.config.stop.is_stopped() {
            self.timers.signal().raise();
        }
    }

    /// The claim has a reason to ask the server.
    pub(crate) fn wake_claim(&self, claim: &Arc<Claim>) {
        if claim.wake() {
            self.timers.due_by(Some(self.config.now()));
        }
    }

    /// The claim leaves without the lock. A wake-up of a plain lock is for any waiter: the claim's goes to another waiter.
    pub(crate) fn pass_wake_up_on(&self, claim: &Claim) {
        if claim.lock.kind == LockKind::Plain
            && let Some(other) = self.registry.any(claim.lock.name.as_str(), Claim::is_waiting)
        {
            self.wake_claim(&other);
        }
    }

    /// Has another claim of this client on the same lock recheck at `at`, since this one waits no longer: the server tells only the
    /// first waiter of a client when the holder's lease ends. A waiter for a plain lock rechecks by itself.
    pub(crate) fn recheck_by(&self, claim: &Claim, at: Option<Instant>) {
        // A claim without a place yet is told when to recheck by the answer that gives it one.
        if let Some(time) = at
            && claim.lock.kind != LockKind::Plain
            && self.registry.any(claim.lock.name.as_str(), |other| other.recheck_by(time)).is_some()
        {
            self.timers.due_by(at);
        }
    }

    /// What `read` says of each claim.
    pub(crate) fn snapshot<T>(&self, read: impl Fn(&Claim, Instant) -> Option<T>) -> Vec<T> {
        let now = self.config.now();
        // The registry's mutex is held for no longer than it takes to copy the list.
        self.registry.all().iter().filter_map(|claim| read(claim, now)).collect()
    }
}

/// The server was told of the end of a hold.
pub(crate) fn log_release(claim: &Claim, token: FencingToken, held_for: Duration) {
    let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*claim.config.label);
    log_line!(debug, "fairlock::release",
        event = "released", lock = lock.as_str(), owner = owner.as_str(), label = label,
        token = token.get(), held_ms = ms(held_for);
        "lock {lock} released by {label} after {held_for:.1?}, token {token} ({owner})"
    );
}

impl Acquired {
    /// The token of the grant, or the least that a grant to the place may have.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Acquired::Granted { token, .. } => Some(token.get()),
            Acquired::Queued { latest, .. } => Some(latest.saturating_add(1)),
            Acquired::Busy { .. } => None,
        }
    }
}

impl Renewal {
    /// The number of [`Acquired::number`], for the answer to a heartbeat.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Renewal::Granted { token, .. } => Some(token.get()),
            Renewal::Waiting { latest, .. } => Some(latest.saturating_add(1)),
            Renewal::Renewed | Renewal::Lost => None,
        }
    }
}

impl Ledger {
    /// An attempt to ask for this claim, or to keep its place, has ended: with an answer of this number, or without an answer.
    pub(crate) fn attempt_ended(&self, claim: &Arc<Claim>, outcome: Answer<Option<u64>>, now: Instant) {
        let is_over = match outcome {
            Ok(number) => number.is_some_and(|number| claim.told_of(number, now)),
            Err(error) => claim.attempt_failed(&error, now),
        };
        // The claim has ended while the attempt was under way, and nobody else will look.
        if is_over {
            self.forget(claim);
        }
    }

    /// An attempt to tell the server of the claim's end has failed. Where owners name places, a withdrawal that arrives late would
    /// remove the place of the owner's next request, which waits for that as for a late ask.
    pub(crate) fn cleanup_failed(&self, pending: &PendingCleanup, error: &BackendError) {
        if pending.cleanup == Cleanup::Withdraw && self.backend.keeps_place_by_owner(&pending.claim.lock) {
            self.attempt_ended(&pending.claim, Err(error.clone()), self.config.now());
        }
    }

    /// The claim has ended: its owner's next call makes a new one.
    pub(crate) fn forget(&self, claim: &Arc<Claim>) {
        let Some(until) = claim.take_late_until() else { return self.registry.remove(claim) };
        let once_more = claim.once_more(self.config.now());
        // If places are named by owners, a late attempt may make a place that looks like the place of the owner's next request,
        // and the withdrawal would remove it. So the next request waits until the withdrawal is done. The claim is replaced and
        // not removed: otherwise another claim could come in between. The claim has ended, so the next request may have come
        // before this: then the late attempt and the next request have one name at the server, and the end of that request
        // withdraws once more.
        if !self.backend.keeps_place_by_owner(&claim.lock) {
            self.registry.remove(claim);
        } else if let Some(next) = self.registry.replace(claim, &once_more) {
            if next.withdraw_again_at(until) {
                self.forget(&next); // has ended, too
            }
            return;
        }
        self.backlog.add_late(once_more, until);
        self.timers.due_by(Some(until));
    }
}
