//! What all handles of one client share, and what happens to its claims whichever thread learns of it, in an outage too.
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

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::backend::{Answer, Backend, BackendError, BackendErrorKind, Subscription};
use crate::claim::{Claim, Grant, GrantedBy, Loss, Standing};
use crate::config::Config;
use crate::ending::Ending;
use crate::error::{Error, Lost, LostCause, Result};
use crate::ids::{ClientId, LockKind, LockName};
use crate::logging::{log_line, ms};
use crate::losses::{LossCallbacks, log_loss};
use crate::registry::Registry;
use crate::schedule::{Concerned, Schedule};
use crate::stats::Counters;

/// Handles, guards and requests own one together; threads only keep a `Weak`.
pub(crate) struct Shared {
    pub(crate) id: ClientId,
    pub(crate) config: Arc<Config>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) registry: Registry,
    pub(crate) schedule: Schedule,
    /// The body of the watchdog's thread, which stands above this module.
    pub(crate) watch: fn(&Weak<Shared>),
    pub(crate) loss_callbacks: LossCallbacks,
    pub(crate) counters: Counters,
    pub(crate) subscription: Mutex<Option<Subscription>>,
    pub(crate) ending: Ending,
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        self.config.clock.now()
    }

    /// # Errors
    /// [`Error::Shutdown`] after `shutdown`.
    pub(crate) fn check_running(&self, lock: Option<&LockName>) -> Result<()> {
        if self.is_running() { Ok(()) } else { Err(Error::Shutdown { lock: lock.cloned() }) }
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.config.stop.is_stopped()
    }

    pub(crate) fn is_draining(&self) -> bool {
        !self.is_open() && self.is_running()
    }

    /// Whether new holds and waits are allowed.
    pub(crate) fn is_open(&self) -> bool {
        !self.config.stop.is_closed()
    }

    /// Starts the watchdog with the first request.
    ///
    /// # Errors
    /// `Unavailable` when the system has no thread to give: without one no hold could be renewed.
    pub(crate) fn start_watchdog(self: &Arc<Self>) -> Answer<()> {
        self.schedule.start(&self.schedule.dog, self, self.watch).map_err(|error| {
            BackendError::new(BackendErrorKind::Unavailable, "no thread for the watchdog").with_source(error)
        })
    }

    /// A claim has become a hold: it is counted, its callers are woken, and the watchdog looks after it.
    ///
    /// Counted first, so that a caller that has the lock finds it counted. The rest does not delay that caller: before its
    /// call returns it tells the watchdog itself.
    pub(crate) fn granted(&self, claim: &Claim, by: GrantedBy) {
        let Grant { token, waited, due_at, ends_at, recheck_at } = claim.take_grant();
        self.counters.granted(&claim.lock.name, claim.request, by, waited);
        claim.raise();
        self.schedule.due_by(due_at);
        self.schedule.ends_by(ends_at);
        self.recheck_by(claim, recheck_at);
        self.counters.meter_grant(&claim.lock.name, by, waited);
        let (lock, owner, label) = (&claim.lock.name, &claim.owner, &*self.config.label);
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

    /// All of it but the callbacks and the log.
    pub(crate) fn mark_lost(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let held_for = claim.held_for(self.now());
        let Loss { lost, was_leaving } = claim.lose(cause)?;
        // A hold that is being released stays until the server has heard of that: the owner's next request waits for it.
        let is_leaving = claim.leaving().is_some();
        if !is_leaving {
            self.forget(claim);
        }
        self.registry.remember_lost_leak(claim);
        self.counters.lost(&claim.lock.name);
        claim.raise();
        self.counters.meter_loss(&claim.lock.name, cause);
        // Counted at the unlock if it was leaving. It may leave by now, since those who wait were told: that counts nothing.
        if let Some(time) = held_for.filter(|_| !was_leaving) {
            self.counters.held(&claim.lock.name, time);
        }
        Some(lost)
    }

    /// Marks a hold whose time is over as lost, unless another thread has. Returns its loss, also an earlier one.
    pub(crate) fn lose_if_expired(&self, claim: &Arc<Claim>) -> Option<Lost> {
        let lost = claim.loss(self.now())?;
        self.lose(claim, lost.cause);
        Some(lost)
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
        if !self.is_open() {
            self.ending.signal.raise();
        }
        if !self.is_running() {
            self.schedule.signal().raise();
        }
    }

    /// The claim has a reason to ask the server.
    pub(crate) fn wake_claim(&self, claim: &Arc<Claim>) {
        if claim.wake() {
            self.schedule.due_by(Some(self.now()));
        }
    }

    /// The claim leaves without the lock. A wake-up of a plain lock is for any waiter, so it goes to another one.
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
            self.schedule.due_by(at);
        }
    }

    /// What `read` says of each claim.
    pub(crate) fn snapshot<T>(&self, read: impl Fn(&Claim, Instant) -> Option<T>) -> Vec<T> {
        let now = self.now();
        // The registry's mutex is held for no longer than it takes to copy the list.
        self.registry.all().iter().filter_map(|claim| read(claim, now)).collect()
    }

    /// A call that was sent at `sent` was not answered; `failed` is its lock and its error. `others_answer`: a call to another
    /// server was, at the same time.
    pub(crate) fn heard_nothing(&self, sent: Instant, failed: (LockName, BackendError), others_answer: bool) {
        let now = self.now();
        self.schedule.heard_nothing();
        let line = self.schedule.with_rounds(|rounds| rounds.outage.failed(sent, now, failed));
        // Counted for a line only: there may be many claims, and many calls fail.
        let Some(line) = line else { return };
        let concerned = self.concerned((!others_answer).then_some(line.since));
        self.schedule.with_rounds(|rounds| rounds.outage.concerns(concerned));
        line.write(&self.config.label, concerned);
    }

    /// The outage is over when the server has answered, and nothing that failed is left.
    pub(crate) fn end_outage_if_over(&self) {
        if self.schedule.is_silent() || !self.schedule.with_rounds(|rounds| rounds.outage.lasts()) {
            return;
        }
        let failed = self.registry.has(|claim| claim.is_concerned(None).is_some());
        if failed || self.schedule.chores.has_failed() {
            return;
        }
        let now = self.now();
        let ended = self.schedule.with_rounds(|rounds| {
            rounds.renewals.answered();
            rounds.outage.ended(now)
        });
        if let Some((line, concerned)) = ended {
            line.write(&self.config.label, concerned);
        }
    }

    fn concerned(&self, since: Option<Instant>) -> Concerned {
        let mut concerned = Concerned { releases: self.schedule.chores.len(), ..Concerned::default() };
        self.registry.for_each(|claim| match claim.is_concerned(since) {
            Some(Standing::Holds) => concerned.holds += 1,
            Some(Standing::Waits) => concerned.waiters += 1,
            None => {}
        });
        concerned
    }
}

// A panic leaves no state half changed, here, in a claim or in a channel: each mutex is held for a few assignments that can't
// panic. So a guard may be dropped as a thread unwinds, and a handle be used after `catch_unwind`.
impl RefUnwindSafe for Shared {}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}
