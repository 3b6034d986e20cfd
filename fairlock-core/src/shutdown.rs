//! The end of a client: waiters fail; holds are lost; holds, places and the leftovers of earlier calls are released at the
//! server; callbacks run. One bound covers all of this.
//!
//! A drain goes before: waits end, no lock is granted any more, and holders finish their work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, BackendErrorKind};
use crate::backlog::{Backlog, Cleanup};
use crate::claim::{AfterGivingUp, Claim, Failure};
use crate::ending::{Ended, Stopping, Unsettled};
use crate::error::{Error, Lost, LostCause, Result};
use crate::ledger::Ledger;
use crate::logging::log_line;
use crate::losses::{Stopped, log_loss};
use crate::shared::Shared;
use crate::snapshot::HeldLock;
use crate::time::{Raise, Woken};

/// Waits `at_most` so long until all holds are given back, and then shuts the client down within `limit`. Returns the holds
/// that were cut off, by whichever call.
///
/// # Errors
/// As [`shut_down`]; `Shutdown` if another call does that, and takes longer than `limit`.
pub(crate) fn drain(shared: &Arc<Shared>, at_most: Duration, limit: Duration) -> Result<Vec<HeldLock>> {
    let _here = shared.config.clock.attend();
    let until = shared.now().checked_add(at_most);
    shared.config.stop.close();
    end_waits(shared);
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
    let _ = shut_down(shared, limit); // it is kept
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

/// Ends the client within this time; a second call does nothing.
///
/// # Errors
/// `Unsettled`.
pub(crate) fn shut_down(shared: &Arc<Shared>, limit: Duration) -> Result<()> {
    if shared.config.stop.stop() == Stopping::Before {
        return Ok(());
    }
    shared.ledger.ending.signal.raise(); // no drain goes on
    let _here = shared.config.clock.attend();
    let ends_at = shared.now() + limit;
    // The watchdog begins no other round. A slow server may hold up a round that is under way. The releases do not wait for
    // that round: it renews no lost hold.
    shared.timers.tell_to_end();
    shared.timers.end_pauses(|_| true);
    // Waiters first: no lock that is released may go to a waiter of this client.
    end_waits(shared);
    // Holders are told before the server is: the next holder must not meet one that still relies on the lock.
    let (mut losses, mut cut_off) = (Vec::new(), Vec::new());
    for claim in &shared.ledger.registry.all() {
        let now = shared.now();
        let held = claim.as_held(now);
        // A hold that its holder is releasing is not lost by the shutdown.
        if claim.valid_until().is_some()
            && let Some(lost) = shared.ledger.mark_lost(claim, LostCause::Shutdown)
        {
            // By another claim: the last guard may be dropped in this very moment, and then this claim has no token. And a hold that
            // was lost stays lost to its guards.
            let hold = Claim::of_stray_grant(&claim.hold(lost.token), &shared.config, now);
            shared.backlog.add(&Arc::new(hold), Cleanup::Release, now);
            losses.push(lost);
            cut_off.extend(held);
        }
    }
    // The last tenth is for callbacks, even when the server does not answer.
    let unsettled = settle_all(shared, ends_at - limit / 10);
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

/// Waits until the server has been told of everything and the watchdog has ended.
fn settle_all(shared: &Arc<Shared>, until: Instant) -> Option<Unsettled> {
    let (signal, backlog) = (shared.timers.signal(), &shared.backlog);
    // Callers release holds too; what they can't tell the server they leave to this loop.
    let is_open = |claim: &Claim| claim.is_waiting() || claim.leaving().is_some();
    backlog.begin_to_end(shared.now());
    loop {
        // Read first: what is added, done or put back after that ends the sleep at once.
        let seen = signal.generation();
        for (claims, cleanup) in shared.first_attempts.take_all().iter().zip(Cleanup::ALL) {
            claims.iter().for_each(|claim| backlog.add(claim, cleanup, shared.now()));
        }
        shared.calls.take_all().into_iter().for_each(|call| call()); // they ask no server now
        let is_idle = backlog.open().is_none() && shared.ledger.ending.all_reported();
        if is_idle && shared.timers.is_gone() && !shared.ledger.registry.has(is_open) {
            break;
        }
        // Places that owners name may be open until these are done. Else the last withdrawal was the last word.
        if is_idle {
            backlog.make_late_ones_due(shared.now());
        }
        Driver::start(shared, until);
        // A driver that ends raises the signal, also when the time is over.
        if signal.wait_at_the_end(seen, until) == Woken::TimeOut || shared.now() >= until {
            break;
        }
    }
    // What a caller is still telling the server is not settled either.
    let in_hand = || {
        let mut open = shared.ledger.registry.all();
        open.retain(|claim| is_open(claim));
        Some((open.len(), Arc::clone(open.first()?)))
    };
    let (count, first) = backlog.open().or_else(in_hand)?;
    let (lock, error) = (first.lock.name.clone(), first.leaving().and_then(|(_, error)| error));
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

/// Fails all waits, and has their requests withdrawn.
fn end_waits(shared: &Shared) {
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
    waited.iter().for_each(|claim| shared.ledger.withdraw_soon(claim));
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

/// The most calls at once; a backend may combine them into fewer round trips.
const MOST_THREADS: usize = 16;

/// A thread that tells the server what is left, until nothing is left or the time is over. It may outlast the shutdown, which does not
/// wait for a server without an answer.
struct Driver(Arc<Shared>);

impl Drop for Driver {
    /// What was added meanwhile finds no thread: the shutdown looks again, and starts one.
    fn drop(&mut self) {
        self.0.backlog.drivers.fetch_sub(1, Ordering::SeqCst);
        self.0.timers.signal().raise();
    }
}

impl Driver {
    fn new(shared: &Arc<Shared>) -> Driver {
        shared.backlog.drivers.fetch_add(1, Ordering::SeqCst);
        Driver(Arc::clone(shared))
    }

    /// Starts as many as there is work for; those that end meanwhile are not replaced here.
    fn start(shared: &Arc<Shared>, until: Instant) {
        let backlog = &shared.backlog;
        for _ in backlog.drivers.load(Ordering::SeqCst)..backlog.len().min(MOST_THREADS) {
            shared.config.clock.announce_background();
            let driver = Driver::new(shared);
            let run = move || driver.run(until);
            if let Err(error) = thread::Builder::new().name("fairlock-end".into()).spawn(run) {
                log_line!(warn, "fairlock::release",
                    event = "no thread", error:% = error;
                    "can't start a thread to release locks, so the shutdown takes longer: {error}"
                );
                return Driver::new(shared).run(until);
            }
        }
    }

    fn run(self, until: Instant) {
        let _here = self.0.config.clock.attend_in_background();
        let driver = self; // is gone before this thread leaves the clock
        let shared = &*driver.0;
        let signal = shared.timers.signal();
        loop {
            let (seen, now) = (signal.generation(), shared.now());
            let is_over = now >= until || shared.ledger.ending.ended().is_some();
            if let Some(batch) = shared.backlog.next_at_the_end(now, is_over) {
                shared.cleanup_run().attempt(batch);
            } else if let Some(at) = shared.backlog.due_at_the_end(until).filter(|_| !is_over) {
                signal.wait_at_the_end(seen, at);
            } else {
                return;
            }
        }
    }
}
