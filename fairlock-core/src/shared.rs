//! What all handles of one client share.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::{Backend, Subscription};
use crate::claim::{AfterEnd, Claim, GrantedBy, News};
use crate::losses::Losses;
use crate::registry::Registry;
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
    pub(crate) losses: Losses,
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
        log::debug!(
            target: "fairlock::acquire",
            event = "granted", lock = lock.as_str(), owner = owner.as_str(), token = token.get(),
            by:? = by, waited_ms = ms(waited);
            "lock {lock} granted to {owner} ({by:?})"
        );
    }

    /// A hold is lost: its flag and the channels first, then the callbacks. Each loss is told here, and only here.
    pub(crate) fn lose(&self, claim: &Arc<Claim>, cause: LostCause) {
        if let Some(lost) = self.mark_lost(claim, cause) {
            self.losses.report(&lost);
        }
    }

    /// All but the callbacks.
    pub(crate) fn mark_lost(&self, claim: &Arc<Claim>, cause: LostCause) -> Option<Lost> {
        let lost = claim.lose(cause)?;
        // One that is being given back stays until the server has heard: what its owner asks for next waits for that.
        if claim.leaving().is_none() {
            self.registry.remove(claim);
        }
        self.registry.remember_lost_leak(claim);
        count(&self.counters.lost);
        let Lost { lock, owner, token, .. } = &lost;
        log::warn!(
            target: "fairlock::watchdog",
            event = "lost", lock = lock.as_str(), owner = owner.as_str(), token = token.get(), cause:? = cause;
            "{lost}"
        );
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
        if !self.is_running() {
            return;
        }
        // The place of a request that was the last handle, say: nobody tells the server after us. One attempt each.
        self.do_chores();
        for claim in self.registry.all() {
            if claim.leaked() > 0 {
                log::warn!(
                    target: "fairlock::watchdog",
                    event = "leaked", lock = claim.lock.name.as_str(), owner = claim.owner.as_str();
                    "the client of {} is gone: its leaked hold of lock {} is not renewed any more",
                    claim.owner,
                    claim.lock.name
                );
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Milliseconds for the log.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
