//! What all handles of one client share.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::{Backend, Subscription};
use crate::claim::{AfterEnd, Claim, GrantedBy, News};
use crate::losses::LossCallbacks;
use crate::registry::Registry;
use crate::say::say;
use crate::shutdown::Stop;
use crate::stats::{Counters, count};
use crate::watchdog::Watchdog;
use crate::{ClientId, Clock, Error, LockName, Lost, LostCause, Result};

/// What a builder has settled.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) place_ttl: Duration,
    pub(crate) outage_limit: Duration,
    pub(crate) label: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) stop: Stop,
}

/// Handles, guards and requests own one together; threads only hold a `Weak`.
pub(crate) struct Shared {
    pub(crate) id: ClientId,
    pub(crate) config: Config,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) registry: Registry,
    pub(crate) watchdog: Watchdog,
    pub(crate) loss_callbacks: LossCallbacks,
    pub(crate) counters: Counters,
    pub(crate) subscription: Mutex<Option<Subscription>>,
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
        !self.config.stop.is_set()
    }

    /// A claim has become a hold: it is counted, its callers are woken, and the watchdog looks after it.
    ///
    /// Counted first, so that whoever has the lock finds it counted. The rest does not keep him waiting: before he
    /// returns he tells the watchdog himself.
    pub(crate) fn granted(&self, claim: &Claim, by: GrantedBy) {
        let News { token, waited, due_at, look_at } = claim.news();
        self.counters.granted(claim.request, by, waited);
        claim.signal.raise();
        self.watchdog.due_by(due_at);
        self.look_by(claim, look_at);
        let (lock, owner) = (&claim.lock.name, &claim.owner);
        say(|| {
            log::debug!(
                target: "fairlock::acquire",
                event = "granted", lock = lock.as_str(), owner = owner.as_str(), token = token.get(),
                by:? = by, waited_ms = ms(waited);
                "lock {lock} granted to {owner} ({by:?})"
            );
        });
    }

    /// A hold is lost: that is told, and written to the log.
    pub(crate) fn lose(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.tell_loss(claim, cause) {
            log_loss(&lost);
        }
    }

    /// Tells of a loss: the claim's flag and the channels first, then the callbacks. Each loss is told here, and only
    /// here. What it returns has to be logged.
    pub(crate) fn tell_loss(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let lost = self.mark_lost(claim, cause)?;
        self.loss_callbacks.report(&lost);
        Some(lost)
    }

    /// All but the callbacks and the log.
    pub(crate) fn mark_lost(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let lost = claim.lose(cause)?;
        // One that is being given back stays until the server has heard: what its owner asks for next waits for that.
        if claim.leaving().is_none() {
            self.registry.remove(claim);
        }
        self.registry.remember_lost_leak(claim);
        count(&self.counters.lost);
        claim.signal.raise();
        Some(lost)
    }

    /// Marks a hold that is over by the clock as lost, if nobody has noticed yet.
    pub(crate) fn lose_if_over(&self, claim: &Arc<Claim>) {
        if let Some(lost) = claim.loss(self.now()) {
            self.lose(claim, lost.cause);
        }
    }

    /// Nothing of the claim is left here or at the server.
    pub(crate) fn forget(&self, claim: &Arc<Claim>) -> AfterEnd {
        let after = claim.end();
        self.registry.remove(claim);
        claim.signal.raise();
        if !self.is_running() {
            self.watchdog.signal().raise(); // a shutdown waits until everything is settled
        }
        after
    }
}

impl Drop for Shared {
    /// The last handle is gone, so no guard and no request is left: only leaked holds can be. The threads are told
    /// to end; they are not waited for, since this may run on one of them.
    fn drop(&mut self) {
        self.watchdog.tell_to_end();
        self.watchdog.log_losses();
        if !self.is_running() {
            return;
        }
        // The place of a request that was the last handle, say: nobody tells the server after us. One attempt each.
        self.do_chores();
        let mut leaked = self.registry.all();
        leaked.retain(|claim| claim.leaked() > 0);
        if let Some(first) = leaked.first() {
            let (lock, owner, holds) = (&first.lock.name, &first.owner, leaked.len());
            say(|| {
                log::warn!(
                    target: "fairlock::watchdog",
                    event = "leaked", lock = lock.as_str(), owner = owner.as_str(), holds = holds;
                    "the client is gone: its {holds} leaked holds are not renewed any more; the first: {owner} holds lock {lock}"
                );
            });
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

pub(crate) fn log_loss(loss: &Lost) {
    let Lost { lock, owner, token, cause, .. } = loss;
    say(|| {
        log::warn!(
            target: "fairlock::watchdog",
            event = "lost", lock = lock.as_str(), owner = owner.as_str(), token = token.get(), cause:? = cause;
            "{loss}"
        );
    });
}

/// Milliseconds for the log.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
