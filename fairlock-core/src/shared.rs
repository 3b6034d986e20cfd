//! What all handles of one client share: the client's parts, and their end.
//!
//! A client ends with its last handle, or by a shutdown: waiters fail; holds are lost; holds, places and the leftovers of earlier calls are
//! released at the server; callbacks run. One bound covers all of this. A drain goes before: waits end, no lock is granted any more, and
//! holders finish their work.

use std::fmt;
use std::ops::Deref;
use std::panic::RefUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::{Backend, BackendError, BackendErrorKind, Subscription};
use crate::backlog::{Backlog, Calls, Cleanup, FirstAttempts};
use crate::claim::{AfterGivingUp, Claim, Failure, HeldLock};
use crate::config::{Config, Stopping};
use crate::error::{Error, Lost, LostCause, Result};
use crate::flow::{CleanupRun, Parts};
use crate::ids::ClientId;
use crate::ledger::Ledger;
use crate::logging::log_line;
use crate::losses::{Stopped, log_loss};
use crate::outage::Outage;
use crate::stats::Counters;
use crate::time::{Raise, Woken};
use crate::timers::{Bodies, Body, Timers};

/// For how long the drop of a client's last handle waits for what tasks have given up.
const LAST_MOMENT: Duration = Duration::from_millis(250);

/// [`Handles`] own it; threads only keep a `Weak`.
pub(crate) struct Shared {
    pub(crate) id: ClientId,
    pub(crate) config: Arc<Config>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) ledger: Ledger,
    pub(crate) timers: Arc<Timers>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) first_attempts: FirstAttempts,
    pub(crate) calls: Calls,
    pub(crate) outage: Outage,
    pub(crate) subscription: Mutex<Option<Subscription>>,
    /// How a drain or a shutdown has ended, with the holds that were lost by that; none before.
    pub(crate) ended: Mutex<Option<Result<Vec<HeldLock>>>>,
}

/// What the program's handles, guards and requests own together. What they leave to threads owns a [`Shared`] alone.
pub(crate) struct Handles(pub(crate) Arc<Shared>);

impl Deref for Handles {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handles {
    /// The last one is gone, and the process may end at once: what tasks have just given up has a moment to be told. The system sends
    /// what a thread has written by then, even if the process ends.
    fn drop(&mut self) {
        let signal = &self.ledger.ending;
        let until = self.now() + LAST_MOMENT;
        loop {
            let seen = signal.generation();
            if self.first_attempts.is_idle()
                || self.timers.is_told_to_end()
                || signal.wait_at_the_end(seen, until) == Woken::TimeOut
            {
                return;
            }
        }
    }
}

/// The bodies of the client's threads, which stand above this module.
pub(crate) struct Threads {
    pub(crate) dog: fn(&Weak<Shared>),
    pub(crate) expiry: fn(&Weak<Shared>),
    /// With the thread's number.
    pub(crate) tasks: fn(&Weak<Shared>, usize),
    pub(crate) calls: fn(&Weak<Shared>, usize),
    pub(crate) waker: fn(&Weak<Shared>),
    pub(crate) slow: fn(&Weak<Shared>),
}

impl Shared {
    /// No wake-ups reach it before it has a subscription.
    pub(crate) fn new(
        id: ClientId,
        config: Config,
        backend: Arc<dyn Backend>,
        counters: Counters,
        threads: &Threads,
    ) -> Arc<Shared> {
        let (config, backlog) = (Arc::new(config), Arc::new(Backlog::default()));
        Arc::new_cyclic(|client| {
            let body = |body: fn(&Weak<Shared>)| -> Body {
                let client = Weak::clone(client);
                Arc::new(move || body(&client))
            };
            let numbered = |body: fn(&Weak<Shared>, usize), number: usize| -> Body {
                let client = Weak::clone(client);
                Arc::new(move || body(&client, number))
            };
            let bodies = Bodies {
                dog: body(threads.dog),
                expiry: body(threads.expiry),
                tasks: std::array::from_fn(|number| numbered(threads.tasks, number)),
                calls: std::array::from_fn(|number| numbered(threads.calls, number)),
                waker: body(threads.waker),
                slow: body(threads.slow),
            };
            let timers = Arc::new(Timers::new(&config.clock, bodies));
            Shared {
                id,
                ledger: Ledger::new(&config, &backend, &timers, &backlog, counters),
                outage: Outage::new(&config, timers.signal()),
                config,
                backend,
                timers,
                backlog,
                first_attempts: FirstAttempts::default(),
                calls: Calls::default(),
                subscription: Mutex::new(None),
                ended: Mutex::new(None),
            }
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.config.now()
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let Shared { id, config, backend, ledger, timers, backlog, outage, .. } = self;
        Parts { id: *id, config, backend: &**backend, ledger, timers, backlog, outage }
    }

    pub(crate) fn cleanup_run(&self) -> CleanupRun<'_> {
        CleanupRun::new(self.parts())
    }
}

// A panic leaves no state half changed, here, in a claim or in a channel: each mutex is held for a few assignments that can't
// panic. So a guard may be dropped as a thread unwinds, and a handle be used after `catch_unwind`.
impl RefUnwindSafe for Shared {}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
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
        self.backlog.make_late_ones_due(self.now());
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
    let signal = &shared.ledger.ending;
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
        if let Some(ended) = &*shared.ended.lock() {
            return ended.clone();
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
    shared.ledger.ending.raise(); // no drain goes on
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
    let settled = settle_all(shared, ends_at - limit / 10);
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
    let ended = settled.map(|()| cut_off);
    *shared.ended.lock() = Some(ended.clone());
    shared.ledger.ending.raise();
    ended.map(drop)
}

/// Waits until the server has been told of everything and the watchdog has ended.
///
/// # Errors
/// `Unsettled`.
fn settle_all(shared: &Arc<Shared>, until: Instant) -> Result<()> {
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
        let is_idle = backlog.open().is_none() && shared.ledger.loss_callbacks.all_reported();
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
    let Some((count, first)) = backlog.open().or_else(in_hand) else { return Ok(()) };
    let (lock, error) = (first.lock.name.clone(), first.leaving().and_then(|(_, error)| error));
    let error = error.unwrap_or_else(|| {
        BackendError::new(BackendErrorKind::Unavailable, "no answer in the time that a shutdown has")
    });
    log_line!(warn, "fairlock::release",
        event = "unsettled", lock = lock.as_str(), count = count, error:% = error;
        "shut down with {count} hold(s) or place(s) not released, the first of lock {lock}: {error}"
    );
    Err(Error::Unsettled { count, lock, source: Box::new(error) })
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
    !is_open && backlog.len() == 0 && ledger.loss_callbacks.all_reported()
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
            let is_over = now >= until || shared.ended.lock().is_some();
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
