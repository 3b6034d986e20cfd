//! The end of a client: waiters fail, then holds are lost and given back together with everything that is left to be told to
//! the server, then callbacks run. All of it has one bound.

mod settling;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::backend::{BackendError, BackendErrorKind};
use crate::claim::Claim;
use crate::losses::Stopped;
use crate::say::say;
use crate::shared::{Shared, log_loss};
use crate::time::Woken;
use crate::watchdog::Task;
use crate::{Error, Lost, LostCause, Result};

use settling::{Open, Settling};

/// Says that the client is being shut down. Claims look at it whenever they would become a hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// Who set a [`Stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    Now,
    Before,
}

impl Stop {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self) -> Stopping {
        if self.0.swap(true, Ordering::SeqCst) { Stopping::Before } else { Stopping::Now }
    }
}

impl Shared {
    /// # Errors
    /// [`Error::Unsettled`].
    pub(crate) fn shut_down(&self) -> Result<()> {
        if self.config.stop.set() == Stopping::Before {
            return Ok(());
        }
        let _here = self.config.clock.attend();
        let limit = self.config.outage_limit;
        let ends_at = self.now() + limit;
        // The watchdog begins no other round. One that is under way may be held up by a slow server, and is not waited for
        // before the holds are given back: it renews none that is lost.
        self.watchdog.tell_to_end();
        let settling = Settling::new(&self.backend, &self.config.clock, Arc::clone(self.watchdog.signal()));
        // A claim that is made from here on is not in this list; its maker looks at `stop` after it is in the registry,
        // and gives it up.
        let claims = self.registry.all();
        // Waiters first: no lock that is given back may go to one of ours.
        self.fail_waiters(&claims, &settling);
        for claim in &claims {
            // Also of those that hold or leave: their owners' next calls may wait for that.
            claim.signal.raise();
        }
        // Holders are told before the server is: whoever gets the lock next must not meet one that still believes in it.
        let mut losses = Vec::new();
        for claim in &claims {
            if let Some(lost) = self.mark_lost_for_shutdown(claim) {
                settling.add_lost(claim, lost.token);
                losses.push(lost);
            }
        }
        // The last tenth is for callbacks, also when the server does not answer.
        let result = self.settle_all(&settling, ends_at - limit / 10);
        if self.watchdog.is_gone() {
            self.watchdog.join();
        }
        drop(self.subscription.lock().take());
        self.run_callbacks(&losses, ends_at);
        result
    }

    fn fail_waiters(&self, claims: &[Arc<Claim>], settling: &Arc<Settling>) {
        for claim in claims {
            if claim.fail_for_shutdown() {
                settling.add(claim, Task::Withdraw);
                claim.signal.raise();
            }
        }
    }

    /// One that is being given back by its holder is not lost by this.
    fn mark_lost_for_shutdown(&self, claim: &Arc<Claim>) -> Option<Lost> {
        claim.valid_until()?;
        self.mark_lost(claim, LostCause::Shutdown)
    }

    /// Waits until the server has been told of everything and the watchdog has ended.
    fn settle_all(&self, settling: &Arc<Settling>, until: Instant) -> Result<()> {
        let signal = self.watchdog.signal();
        loop {
            // Read before the look: what is added, done or put back meanwhile ends the sleep at once.
            let seen = signal.epoch();
            // Left by earlier calls, by calls that fail just now, and by the watchdog, which may have had some in hand.
            for (claim, task) in self.take_chores() {
                settling.add(&claim, task);
            }
            // A bump that was passing its hold on puts the claim that is to have it again in the place of the one that
            // was looked at first.
            self.fail_waiters(&self.registry.all(), settling);
            settling.work(until);
            for claim in settling.take_done() {
                self.forget(&claim);
            }
            // Callers give holds back too; what they can't tell the server they leave to be told here.
            let is_open = |claim: &Claim| claim.is_waiting() || claim.leaving().is_some();
            if settling.is_idle() && self.watchdog.is_gone() && !self.registry.has(is_open) {
                break;
            }
            if signal.wait_at_the_end(seen, until) == Woken::TimeOut {
                break;
            }
        }
        let Some(Open { count, lock, error }) = settling.close() else { return Ok(()) };
        let error = error.unwrap_or_else(|| {
            BackendError::new(BackendErrorKind::Unavailable, "no answer in the time that a shutdown has")
        });
        say(|| {
            log::warn!(
                target: "fairlock::release",
                event = "unsettled", lock = lock.as_str(), count = count, error:% = error;
                "shut down with {count} hold(s) or place(s) not given back, the first of lock {lock}: {error}"
            );
        });
        Err(Error::Unsettled { count, lock, source: Box::new(error) })
    }

    fn run_callbacks(&self, losses: &[Lost], ends_at: Instant) {
        losses.iter().for_each(|lost| self.loss_callbacks.report(lost));
        losses.iter().for_each(log_loss);
        let left = ends_at.saturating_duration_since(self.now());
        if self.loss_callbacks.stop(left) == Stopped::Running {
            say(|| {
                log::warn!(
                    target: "fairlock::watchdog",
                    event = "callback runs";
                    "shut down while a callback for lost holds still runs: it may wait for a mutex of the caller"
                );
            });
        }
    }
}
