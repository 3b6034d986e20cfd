//! The calls of tasks, without a thread that waits for them: the threads for tasks make the first attempts of all tasks, many in a
//! call, and no second attempt. What is not answered goes to the watchdog, as a request without a waiting caller or as a cleanup.
//! All else is as for threads.
//!
//! Where the backend does not block, the task makes the first attempt itself, in its poll or its drop, and a release wakes the next task.
//! So no other thread is needed between two tasks. What can happen at the same time:
//!
//! - Attempts of the threads for tasks: a task makes its attempt itself only while no first attempt is left or under way. So tasks
//!   keep their order.
//! - A cancel, a drain, a shutdown: each may end the request before [`Claim::begin_to_ask`], and then no attempt is made. Or the
//!   first attempt is under way: then the request is withdrawn after the answer, as with a thread.
//! - The watchdog: it does not ask for a claim that its task attends to. A release or withdrawal that would overtake a call of the
//!   watchdog is left to the watchdog.
//! - A push before the answer to the ask: the claim keeps it for that answer.
//! - Wakers, which may poll, ask and release on this thread: they run after the attempt, without a mutex, and not inside each other
//!   ([`wake_afterwards`]).

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::backend::Answer;
use crate::backlog::{Batch, Cleanup, FirstAttempt, Next, TaskCall};
use crate::claim::{AfterGivingUp, Claim, Failure, Unlocked};
use crate::config::Config;
use crate::error::{Error, LostCause, Result};
use crate::flow::{Wish, end_of, error_of};
use crate::logging::log_line;
use crate::shared::Shared;
use crate::stats::Event;
use crate::time::wake_afterwards;

/// First attempts in a thread's hands. The drop leaves the rest of them to the watchdog, even after a panic.
struct InHand<'a> {
    shared: &'a Shared,
    batch: Batch,
    /// The number of the thread for tasks.
    thread: Option<usize>,
    /// How many kinds of the cleanups were passed on.
    told: usize,
    began: Instant,
    /// How many calls were answered.
    calls: u32,
}

impl<'a> InHand<'a> {
    fn new(shared: &'a Shared, batch: Batch, thread: Option<usize>) -> InHand<'a> {
        InHand { shared, batch, thread, told: 0, began: shared.now(), calls: 0 }
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let InHand { shared, batch, .. } = self;
        for (claims, cleanup) in batch.cleanups.iter().zip(Cleanup::ALL).skip(self.told) {
            claims.iter().for_each(|claim| shared.ledger.leave_to_watchdog(claim, cleanup));
        }
        batch.asks.iter().for_each(|claim| shared.timers.due_by(claim.stop_attending()));
        // While cleanups are in hand the watchdog does not see them, and may have gone to sleep without an end.
        shared.timers.due_by(shared.backlog.due_at());
        if let Some(thread) = self.thread {
            let call = (shared.now() - self.began).checked_div(self.calls);
            shared.first_attempts.made(thread, batch, call);
            if shared.first_attempts.is_idle() {
                shared.ledger.ending.raise(); // the drop of the last handle may wait for that
            }
        }
    }
}

/// Makes a request and has it asked for. Its owner has no other claim on the lock.
///
/// # Errors
/// No request was made.
pub(crate) fn begin(shared: &Arc<Shared>, wish: Wish<'_>) -> Result<Arc<Claim>> {
    let Wish { lock, owner, terms, units, patience } = wish;
    let name = &lock.name;
    may_begin(&shared.config, &wish)?;
    // The watchdog starts before the first request: no hold may be granted that no thread can renew.
    shared.timers.start_watchdog().map_err(|error| Error::about(name, error))?;
    let (lock, owner) = (lock.clone(), owner.clone());
    let claim = Claim::new(lock, owner, patience.wait, terms, units, &shared.config, shared.now());
    let claim = Arc::new(claim.on(patience.condition).of_task(patience.deadline));
    let join = |_: &Arc<Claim>| None;
    shared.ledger.registry.get_or_make(name, &claim.owner, join, || (Arc::clone(&claim), ()));
    // A drain or a shutdown that began meanwhile may have listed the claims without this claim.
    if let Err(error) = may_begin(&shared.config, &wish) {
        leave(shared, &claim, "shutdown");
        return Err(error);
    }
    claim.begin_wait();
    shared.timers.due_by(claim.due_at());
    attempt_first(shared, &claim, FirstAttempt::Ask);
    Ok(claim)
}

/// The request is refused in a drain: its owner holds nothing.
fn may_begin(config: &Config, wish: &Wish<'_>) -> Result<()> {
    if config.stop.is_closed() { Err(error_of(&wish.lock.name, Failure::Shutdown)) } else { Ok(()) }
}

/// A task stops waiting: it leaves the queue, or gives back what it was granted. `outcome`: what the wait's span says.
pub(crate) fn leave(shared: &Arc<Shared>, claim: &Arc<Claim>, outcome: &str) {
    match claim.give_up_request().map(|give_up| give_up.after) {
        Some(AfterGivingUp::Withdraw) => {
            attempt_first(shared, claim, FirstAttempt::CleanUp(Cleanup::Withdraw));
            shared.ledger.recheck_by(claim, claim.take_recheck());
        }
        Some(AfterGivingUp::Nothing | AfterGivingUp::OthersWait) => {
            shared.ledger.retire(claim);
            shared.first_attempts.left(claim);
        }
        // A loss was logged, and a claim that has failed holds nothing.
        None => _ = unlock(shared, claim, FirstAttempt::CleanUp(Cleanup::Release)),
    }
    claim.end_wait(outcome);
}

/// Gives a task's hold up, by this attempt. The release is under way when this returns: `Claim::release_step` says how it ends.
///
/// # Errors
/// [`Error::Lost`]; [`Error::NotHeld`] for a claim that holds nothing.
pub(crate) fn unlock(shared: &Arc<Shared>, claim: &Arc<Claim>, release: FirstAttempt) -> Result<()> {
    let now = shared.now();
    let unlocked = match shared.ledger.unlock(claim, now) {
        // From here on the watchdog begins no renewal.
        Unlocked::Last { held_for, .. } => {
            attempt_first(shared, claim, release);
            shared.ledger.counters.happened(&claim.lock, Event::Held(held_for));
            Ok(())
        }
        Unlocked::Lost { lost, .. } => {
            match lost.cause {
                LostCause::Shutdown => shared.ledger.retire(claim), // the shutdown tells the server
                _ => attempt_first(shared, claim, release),
            }
            Err(Error::Lost(lost))
        }
        Unlocked::StillHeld | Unlocked::NotHeld | Unlocked::Expired => Err(claim.not_held()),
    };
    claim.end_hold(end_of(&unlocked, "released"));
    unlocked
}

/// A task has dropped the last handle. A thread tells the server what is left: this drop must not wait for the server.
pub(crate) fn end_elsewhere(shared: Shared) {
    if shared.backlog.is_clear() {
        return;
    }
    let clock = shared.config.clock.clone();
    clock.announce_background();
    let run = move || {
        let _here = clock.attend_in_background();
        drop(shared);
    };
    if let Err(error) = thread::Builder::new().name("fairlock-end".into()).spawn(run) {
        log_line!(warn, "fairlock::release",
            event = "no thread", error:% = error;
            "can't start a thread to end the client, so the drop of its last handle ended it: {error}"
        );
    }
}

fn attempt_first(shared: &Arc<Shared>, claim: &Arc<Claim>, attempt: FirstAttempt) {
    if shared.backend.is_non_blocking() && shared.first_attempts.is_idle() {
        run_here(shared, || _ = make_attempts(InHand::new(shared, Batch::of(claim, attempt), None)));
        return;
    }
    let wakes = shared.first_attempts.add(claim, attempt, Arc::<Shared>::clone(shared));
    shared.first_attempts.added(&shared.timers, shared.now(), wakes);
}

/// Asks for a claim without a waiting caller: its lock may be free.
pub(crate) fn ask_again(shared: &Shared, claim: &Arc<Claim>) {
    let is_quick = claim.is_tasks() && shared.backend.is_non_blocking();
    if !is_quick {
        shared.timers.due_by(Some(shared.now())); // the watchdog asks
    } else if claim.begin_to_ask() {
        run_here(shared, || _ = shared.parts().ask(claim, shared.now()));
    }
}

/// Runs the attempt here: on the thread of the task, or on the thread whose release woke the task.
fn run_here(shared: &Shared, attempt: impl FnOnce()) {
    wake_afterwards(|| {
        let _here = shared.config.clock.attend(); // not while wakers run
        attempt();
    });
}

/// One look of a thread for tasks: makes the first attempts that may go. Returns when the thread is to look again.
pub(crate) fn run_first_attempts(shared: &Shared, number: usize) -> Option<Instant> {
    let mut is_silent = false;
    while !shared.timers.is_told_to_end() {
        match shared.first_attempts.next(number, (!is_silent).then(|| shared.now())) {
            Next::Make(batch, wakes) => {
                shared.first_attempts.added(&shared.timers, shared.now(), wakes);
                let hand = InHand::new(shared, batch, Some(number));
                if is_silent {
                    // Each call would wait for a time-out. The watchdog pauses between calls, and gives up.
                    drop(hand);
                } else {
                    // The tasks are woken when the batch is given back: what they want next finds this thread awake.
                    is_silent = wake_afterwards(|| make_attempts(hand));
                }
            }
            Next::LookAt(at) => return Some(at),
            Next::Sleep => break,
        }
    }
    None
}

/// One look of a thread for other calls of tasks.
pub(crate) fn make_calls(shared: &Shared, number: usize) -> Option<Instant> {
    while !shared.timers.is_told_to_end()
        && let Some(call) = shared.calls.next(number)
    {
        call();
    }
    None
}

/// Has a thread make a call. If the client ends, the shutdown makes it; or, once the shutdown may not look any more, this thread: all holds
/// are lost then, and no call asks the server.
///
/// # Errors
/// `Unavailable`: the system has no thread to give.
pub(crate) fn call_elsewhere(shared: &Shared, call: TaskCall) -> Answer<()> {
    shared.timers.start_calls()?;
    shared.calls.add(call, &shared.timers, shared.now());
    if shared.timers.is_told_to_end() {
        shared.calls.take_all().into_iter().for_each(|call| call());
    }
    Ok(())
}

/// Returns whether the server is silent. All first attempts are in hand before the first call, which may panic.
fn make_attempts(mut hand: InHand<'_>) -> bool {
    tell_first(&mut hand) || ask_first(&mut hand)
}

/// Releases, and then withdrawals. Returns whether the server is silent.
fn tell_first(hand: &mut InHand<'_>) -> bool {
    let InHand { shared, batch, told, calls, .. } = hand;
    let mut run = shared.cleanup_run();
    for (claims, cleanup) in batch.cleanups.iter().zip(Cleanup::ALL) {
        if run.is_silent() {
            break;
        }
        *told += 1;
        // Where the watchdog has a call under way, it cleans up afterwards.
        let (busy, claims): (Vec<_>, Vec<_>) =
            claims.iter().cloned().partition(|claim| cleanup.has_to_wait(claim));
        busy.iter().for_each(|claim| shared.ledger.leave_to_watchdog(claim, cleanup));
        if !claims.is_empty() {
            *calls += 1;
            run.attempt(shared.backlog.batch_of(claims, cleanup, shared.now()));
        }
    }
    shared.timers.due_by(run.end());
    let is_silent = run.is_silent();
    if is_silent {
        *calls = 0;
    }
    is_silent
}

/// The first attempts of requests. Returns whether the server is silent.
fn ask_first(hand: &mut InHand<'_>) -> bool {
    // Not for tasks that have left.
    let claims: Vec<_> = hand.batch.asks.iter().filter(|claim| claim.begin_to_ask()).cloned().collect();
    let is_silent = hand.shared.parts().ask_all(&claims);
    hand.calls += u32::from(!claims.is_empty() && !is_silent);
    is_silent
}
