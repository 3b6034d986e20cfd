//! The end of a client: waiters fail; holds are lost; holds, places and the leftovers of earlier calls are released at the
//! server; callbacks run. One bound covers all of this.

mod drain;
mod settling;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, BackendErrorKind};
use crate::backlog::{Batch, Cleanup};
use crate::claim::{AfterGivingUp, Claim, Failure};
use crate::ending::{Ended, Unsettled};
use crate::error::{Lost, LostCause, Result};
use crate::logging::log_line;
use crate::losses::{Stopped, log_loss};
use crate::shared::Shared;
use crate::stop::Stopping;
use crate::time::Woken;

pub(crate) use drain::drain;

use settling::{Open, Settling};

/// Ends the client within this time; a second call does nothing.
///
/// # Errors
/// `Unsettled`.
pub(crate) fn shut_down(shared: &Shared, limit: Duration) -> Result<()> {
    end(shared, limit, &[])
}

/// Ends the client; `failed` are claims that have failed already and are to be withdrawn.
fn end(shared: &Shared, limit: Duration, failed: &[Arc<Claim>]) -> Result<()> {
    if shared.config.stop.stop() == Stopping::Before {
        failed.iter().for_each(|claim| shared.ledger.withdraw_soon(claim));
        return Ok(());
    }
    shared.ledger.ending.signal.raise(); // no drain goes on
    let _here = shared.config.clock.attend();
    let ends_at = shared.now() + limit;
    // The watchdog begins no other round. A slow server may hold up a round that is under way. The releases do not wait for
    // that round: it renews no lost hold.
    shared.timers.tell_to_end();
    shared.timers.end_pauses(|_| true);
    let settling = Settling::new(&shared.backend, &shared.config.clock, Arc::clone(shared.timers.signal()));
    failed.iter().for_each(|claim| settling.add(claim, Cleanup::Withdraw, None));
    // A claim that is made from here on is not in this list. Its maker reads `stop` once it is in the registry, and gives it
    // up.
    let claims = shared.ledger.registry.all();
    // Waiters first: no lock that is released may go to a waiter of this client.
    fail_waiters(&claims, &settling);
    for claim in &claims {
        // Also callers of claims that hold or leave: a later call of the same owner may sleep on such a claim.
        claim.raise();
    }
    // Holders are told before the server is: the next holder must not meet one that still relies on the lock.
    let (mut losses, mut cut_off) = (Vec::new(), Vec::new());
    for claim in &claims {
        let held = claim.as_held(shared.now());
        // A hold that its holder is releasing is not lost by the shutdown.
        if claim.valid_until().is_some()
            && let Some(lost) = shared.ledger.mark_lost(claim, LostCause::Shutdown)
        {
            // Not the claim's token: the last guard may be dropped in this very moment, and then the claim has no token.
            settling.add(claim, Cleanup::Release, Some(lost.token));
            losses.push(lost);
            cut_off.extend(held);
        }
    }
    // The last tenth is for callbacks, even when the server does not answer.
    let unsettled = settle_all(shared, &settling, ends_at - limit / 10);
    // Tasks may wait for releases of which the server could not be told.
    for claim in shared.ledger.registry.all() {
        if claim.is_tasks() && claim.leaving().is_some() {
            claim.abandon_end(Failure::Shutdown);
            shared.ledger.retire(&claim);
        }
    }
    if shared.timers.is_gone() {
        shared.timers.join();
    }
    shared.timers.run_wakers();
    drop(shared.subscription.lock().take());
    shared.ledger.counters.waiting(0); // the watchdog counts no more
    shared.ledger.counters.outage(false);
    run_callbacks(shared, &losses, ends_at);
    let ended = Ended { cut_off, unsettled };
    shared.ledger.ending.is_over(ended.clone());
    ended.cut_off().map(drop)
}

fn fail_waiters(claims: &[Arc<Claim>], settling: &Arc<Settling>) {
    for claim in claims {
        if claim.fail_for_shutdown() == Some(AfterGivingUp::Withdraw) {
            settling.add(claim, Cleanup::Withdraw, None);
            claim.raise();
        }
    }
}

/// Waits until the server has been told of everything and the watchdog has ended.
fn settle_all(shared: &Shared, settling: &Arc<Settling>, until: Instant) -> Option<Unsettled> {
    let signal = shared.timers.signal();
    // Callers release holds too; what they can't tell the server they leave to this loop.
    let is_open = |claim: &Claim| claim.is_waiting() || claim.leaving().is_some();
    loop {
        // Read first: what is added, done or put back after that ends the sleep at once.
        let seen = signal.generation();
        // Left by earlier calls, by calls that fail now, by the watchdog, which may have had some in hand, and by tasks.
        for pending in shared.backlog.take_all() {
            settling.add(&pending.claim, pending.cleanup, pending.claim.token());
        }
        let Batch { releases, withdrawals, .. } = shared.first_attempts.take_all();
        releases.iter().for_each(|claim| settling.add(claim, Cleanup::Release, claim.token()));
        withdrawals.iter().for_each(|claim| settling.add(claim, Cleanup::Withdraw, None));
        shared.calls.take_all().into_iter().for_each(|call| call()); // they ask no server now
        settling.work(until);
        for claim in settling.take_done() {
            shared.ledger.retire(&claim);
        }
        let is_idle = settling.is_idle() && shared.backlog.len() == 0 && shared.ledger.ending.all_reported();
        if is_idle && shared.timers.is_gone() && !shared.ledger.registry.has(is_open) {
            break;
        }
        if signal.wait_at_the_end(seen, until) == Woken::TimeOut {
            break;
        }
    }
    // What another thread, the watchdog or a caller, is still telling the server is not settled either.
    let in_hand = || {
        let mut open = shared.ledger.registry.all();
        open.retain(|claim| is_open(claim));
        let (count, first) = (open.len(), open.first()?);
        let error = first.leaving().and_then(|(_, error)| error);
        Some(Open { count, lock: first.lock.name.clone(), error })
    };
    let Open { count, lock, error } = settling.close().or_else(in_hand)?;
    let error = error.unwrap_or_else(|| {
        BackendError::new(BackendErrorKind::Unavailable, "no answer in the time that a shutdown has")
    });
    log_line!(warn, "fairlock::release",
        event = "unsettled", lock = lock.as_str(), count = count, error:% = error;
        "shut down with {count} hold(s) or place(s) not released, the first of lock {lock}: {error}"
    );
    Some(Unsettled { count, lock, error })
}

fn run_callbacks(shared: &Shared, losses: &[Lost], ends_at: Instant) {
    losses.iter().for_each(|lost| shared.ledger.loss_callbacks.report(lost));
    losses.iter().for_each(log_loss);
    let left = ends_at.saturating_duration_since(shared.now());
    if shared.ledger.loss_callbacks.stop(left) == Stopped::Running {
        log_line!(warn, "fairlock::watchdog",
            event = "callback runs";
            "shut down while a loss callback is still running: it may be waiting for a mutex that the caller holds"
        );
    }
}

impl Drop for Shared {
    /// The last handle is gone, so no guard and no request is left: only leaked holds can be. The threads are told to end
    /// and not waited for, since this may run on one of them.
    fn drop(&mut self) {
        self.timers.tell_to_end();
        self.timers.run_wakers();
        self.ledger.unlogged.log(|| false);
        if self.config.stop.is_stopped() {
            return self.outage.refused.tell_at_the_end();
        }
        // The place of a request that was the last handle, for example. Within 100 ms one attempt begins for each cleanup, and a
        // second one if the first fails at once, as on an idle connection that was closed. A cleanup that has failed before does not
        // wait for the end of its pause: nobody would be left to send it.
        self.backlog.make_late_ones_due();
        self.backlog.retries.answered();
        self.cleanup_run().do_due(|| ());
        self.outage.refused.tell_at_the_end();
        let mut leaked = self.ledger.registry.all();
        leaked.retain(|claim| claim.leaked() > 0);
        if let Some(first) = leaked.first() {
            let (lock, owner, holds) = (&first.lock.name, &first.owner, leaked.len());
            log_line!(warn, "fairlock::watchdog",
                event = "leaked", lock = lock.as_str(), owner = owner.as_str(), holds = holds;
                "the client is gone: its {holds} leaked holds are not renewed any more; the first: {owner} holds lock {lock}"
            );
        }
    }
}
