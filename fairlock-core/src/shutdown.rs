//! The end of a client: waiters fail; holds are lost; holds, places and the leftovers of earlier calls are released at the
//! server; callbacks run. One bound covers all of this.
//!
//! A drain goes before: waits end, no lock is granted any more, and holders finish their work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::{Answer, Backend, BackendError, BackendErrorKind, Withdrawn, only, or_missing};
use crate::backlog::{Backlog, Batch, Cleanup};
use crate::claim::{AfterGivingUp, Claim, Failure};
use crate::config::MOST_AT_ONCE;
use crate::ending::{Ended, Stopping, Unsettled};
use crate::error::{Error, Lost, LostCause, Result};
use crate::ids::{FencingToken, LockName};
use crate::ledger::Ledger;
use crate::logging::log_line;
use crate::losses::{Stopped, log_loss};
use crate::shared::Shared;
use crate::snapshot::HeldLock;
use crate::time::{self, Clock, Raise, Signal, Woken};

/// Ends the client within this time; a second call does nothing.
///
/// # Errors
/// `Unsettled`.
pub(crate) fn shut_down(shared: &Shared, limit: Duration) -> Result<()> {
    end(shared, limit, &[])
}

/// Waits `at_most` so long until all holds are given back, and then shuts the client down within `limit`. Returns the holds
/// that were cut off, by whichever call.
///
/// # Errors
/// As [`shut_down`]; `Shutdown` if another call does that, and takes longer than `limit`.
pub(crate) fn drain(shared: &Shared, at_most: Duration, limit: Duration) -> Result<Vec<HeldLock>> {
    let _here = shared.config.clock.attend();
    let until = shared.now().checked_add(at_most);
    shared.config.stop.close();
    let not_told = end_waits(shared, until);
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
    let _ = end(shared, limit, &not_told); // it is kept
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
    for claim in &claims {
        if claim.fail_for_shutdown() == Some(AfterGivingUp::Withdraw) {
            settling.add(claim, Cleanup::Withdraw, None);
        }
    }
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

/// Fails all waits, and has their requests withdrawn by the watchdog, which goes on. Returns those that it must not withdraw
/// yet: a call that is under way could make their places anew.
fn end_waits(shared: &Shared, until: Option<Instant>) -> Vec<Arc<Claim>> {
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
    // First those about which no call is under way: they need not wait for the others.
    for until in [Some(shared.now()), until] {
        waited.retain(|claim| {
            let is_quiet = is_quiet_by(claim, until);
            if is_quiet {
                shared.ledger.withdraw_soon(claim);
            }
            !is_quiet
        });
    }
    waited
}

/// Waits for the calls about its place that are under way.
fn is_quiet_by(claim: &Claim, until: Option<Instant>) -> bool {
    loop {
        let seen = claim.signal.generation();
        if !claim.may_make_a_place() {
            return true;
        }
        if claim.config.stop.is_stopped() || claim.signal.wait(seen, until) == Woken::TimeOut {
            return false;
        }
    }
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

struct Settling {
    backend: Arc<dyn Backend>,
    clock: Clock,
    /// Raised when an item is added, done or failed.
    signal: Arc<Signal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the time of the next attempt and its number.
    queue: BTreeMap<(Instant, u64), Item>,
    /// The items that are not done, by number: the lock, and the last error.
    open: BTreeMap<u64, (LockName, Option<BackendError>)>,
    /// Claims of which the server has nothing left.
    done: Vec<Arc<Claim>>,
    added: u64,
    in_hand: usize,
    threads: usize,
    closed: bool,
}

struct Item {
    number: u64,
    claim: Arc<Claim>,
    cleanup: Cleanup,
    /// Of the hold to be released.
    token: Option<FencingToken>,
    failures: u32,
}

/// What could not be settled.
struct Open {
    count: usize,
    lock: LockName,
    error: Option<BackendError>,
}

/// What a thread does next.
enum Next {
    /// A release, or withdrawals for one call.
    Do(Vec<Item>),
    Sleep(Instant),
    End,
}

impl Settling {
    fn new(backend: &Arc<dyn Backend>, clock: &Clock, signal: Arc<Signal>) -> Arc<Settling> {
        let (backend, clock) = (Arc::clone(backend), clock.clone());
        Arc::new(Settling { backend, clock, signal, state: Mutex::default() })
    }

    /// `token`: of the hold to be released.
    fn add(&self, claim: &Arc<Claim>, cleanup: Cleanup, token: Option<FencingToken>) {
        let mut state = self.state.lock();
        let number = state.added;
        state.added += 1;
        state.open.insert(number, (claim.lock.name.clone(), None));
        let (claim, at) = (Arc::clone(claim), self.clock.now());
        state.queue.insert((at, number), Item { number, claim, cleanup, token, failures: 0 });
    }

    /// Has as many threads as there is work for work until `until`.
    fn work(self: &Arc<Self>, until: Instant) {
        loop {
            let mut state = self.state.lock();
            if state.threads >= state.queue.len().min(MOST_THREADS) {
                return;
            }
            state.threads += 1;
            drop(state);
            self.clock.announce_background();
            let settling = Arc::clone(self);
            let run = move || settling.run(until);
            if let Err(error) = thread::Builder::new().name("fairlock-end".into()).spawn(run) {
                log_line!(warn, "fairlock::release",
                    event = "no thread", error:% = error;
                    "can't start a thread to release locks, so the shutdown takes longer: {error}"
                );
                self.run(until);
                return;
            }
        }
    }

    /// Whether nothing is left to try.
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && state.in_hand == 0
    }

    fn take_done(&self) -> Vec<Arc<Claim>> {
        std::mem::take(&mut self.state.lock().done)
    }

    /// Begins nothing more. Returns the rest.
    fn close(&self) -> Option<Open> {
        let mut state = self.state.lock();
        state.closed = true;
        let count = state.open.len();
        let (_, (lock, error)) = state.open.pop_first()?;
        drop(state);
        self.signal.raise();
        Some(Open { count, lock, error })
    }

    fn run(&self, until: Instant) {
        let _here = self.clock.attend_in_background();
        loop {
            let seen = self.signal.generation();
            match self.next(until) {
                Next::Do(items) => self.settle(items, until),
                Next::Sleep(at) => _ = self.signal.wait_at_the_end(seen, at),
                Next::End => return,
            }
        }
    }

    fn next(&self, until: Instant) -> Next {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some((&(at, _), first)) = state.queue.first_key_value().filter(|_| !state.closed && now < until)
        else {
            state.threads -= 1;
            return Next::End;
        };
        if at > now {
            return Next::Sleep(at.min(until));
        }
        let cleanup = first.cleanup;
        // The threads share what there is.
        let most = if cleanup == Cleanup::Withdraw {
            state.queue.len().div_ceil(state.threads).min(MOST_AT_ONCE)
        } else {
            1
        };
        let mut items = Vec::new();
        while items.len() < most
            && let Some(next) = state.queue.first_entry().filter(|next| next.key().0 <= now)
            && next.get().cleanup == cleanup
        {
            items.push(next.remove());
        }
        state.in_hand += items.len();
        Next::Do(items)
    }

    /// One attempt for items of one kind.
    fn settle(&self, mut items: Vec<Item>, until: Instant) {
        let told = match items[..] {
            [Item { cleanup: Cleanup::Release, .. }] => vec![self.release(&items[0])],
            _ => self.withdraw(&mut items, until),
        };
        let told: Vec<_> = or_missing(told).take(items.len()).collect();
        for (item, told) in items.iter().zip(&told) {
            if let Err(error) = told {
                item.claim.leaving_failed(error.clone()); // without the mutex: a waker may run
            }
        }
        let mut state = self.state.lock();
        for (mut item, told) in items.into_iter().zip(told) {
            state.in_hand -= 1;
            match told {
                // As the request was, which has left nothing.
                Err(_) if item.claim.was_refused() => {
                    state.open.remove(&item.number);
                    state.done.push(item.claim);
                }
                Ok(()) => {
                    state.open.remove(&item.number);
                    // A hold that was lost stays lost to its guards.
                    if item.claim.leaving().is_some() {
                        state.done.push(item.claim);
                    }
                }
                Err(error) => {
                    if let Some((_, said)) = state.open.get_mut(&item.number) {
                        *said = Some(error);
                    }
                    item.failures += 1;
                    let at = self.clock.now() + time::pause(item.failures);
                    state.queue.insert((at, item.number), item);
                }
            }
        }
        drop(state);
        self.signal.raise();
    }

    fn release(&self, item: &Item) -> Answer<()> {
        match item.token {
            Some(token) => only(self.backend.release(&[item.claim.hold(token)])).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Waits for calls about the places that are under way: one that arrives after the withdrawal would make its place anew.
    fn withdraw(&self, items: &mut [Item], until: Instant) -> Vec<Answer<()>> {
        for Item { claim, .. } in &*items {
            loop {
                let seen = claim.signal.generation();
                if !claim.may_make_a_place() || claim.signal.wait_at_the_end(seen, until) == Woken::TimeOut {
                    break;
                }
            }
        }
        // What was never sent is not there.
        let is_sent: Vec<_> = items.iter().map(|item| !item.claim.is_unsent()).collect();
        let sent = items.iter().zip(&is_sent).filter(|(_, is_sent)| **is_sent);
        let places: Vec<_> = sent.map(|(item, _)| item.claim.place()).collect();
        let answers = if places.is_empty() { Vec::new() } else { self.backend.withdraw(&places) };
        let mut answers = or_missing(answers);
        let told =
            |(item, is_sent): (&mut Item, bool)| match answers.next().filter(|_| is_sent).transpose()? {
                None | Some(Withdrawn::Left) => Ok(()),
                Some(Withdrawn::WasGranted { token, .. }) => {
                    (item.cleanup, item.token) = (Cleanup::Release, Some(token));
                    self.release(item)
                }
            };
        items.iter_mut().zip(is_sent).map(told).collect()
    }
}
