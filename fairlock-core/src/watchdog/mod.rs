//! The thread of a client that keeps its promises while its callers sleep or work: it renews holds and places, many in one round
//! trip; notices losses in time; asks for requests without a waiting caller; and repeats unanswered releases and withdrawals. A
//! second thread reports losses while the watchdog waits for the server, further threads make the first attempts of tasks, and one
//! explains slow waits.
//!
//! One round, in this order. A call is bounded by the backend; calls of many requests have up to 128 of them.
//!
//! | what | how much in a round | what waits for it |
//! | --- | --- | --- |
//! | losses: holds whose time is over | all | nothing: no call is made. During the calls below `report_ended` does this |
//! | renewals: holds first, then places | all that are due, or will be within a round, in one call | all below |
//! | releases, withdrawals | many calls, none begins after 100 ms; first attempts before repeats | asks, the next renewals |
//! | asks: wake-ups without a caller, all places that are gone | the same; no ask begins in a round after a failed ask | the next renewals |
//! | lines in the log about losses | 100 ms | the next renewals |
//!
//! So a renewal is late by 300 ms and one call of each kind at most, however many releases and asks there are. The rest follows
//! in the next round, at once. Withdrawals go before asks, since a caller whose time is over waits up to 50 ms for its
//! withdrawal. A look passes all claims, and takes little time beside the calls of its round.
//!
//! Each request of a call has its own answer. If the request is carried out and its answer lost, it is repeated with the same
//! number, and gets the same answer, as if it had been alone.

mod round;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::backoff;
use crate::claim::earlier;
use crate::logging::{LineLimit, log_line};
use crate::shared::{Shared, Threads};
use crate::slow_wait;
use crate::tasks;
use crate::timers::{Sleeper, Timers};

/// The second thread watches the ends of holds beside the watchdog, which may be waiting for answers: a silent server must not
/// delay the report of a loss. The second thread sleeps until the first known hold ends. A renewal never delays it: at worst the
/// thread wakes once and finds nothing to do. A grant wakes the thread only if the new hold ends earlier.
pub(crate) const THREADS: Threads = Threads {
    dog: |client| keep(client, |timers| &timers.dog, |shared| elsewhere(shared, round::round)),
    expiry: |client| keep(client, |timers| &timers.expiry, |shared| elsewhere(shared, report_ended)),
    tasks: |client, number| {
        let look = move |shared: &Shared| tasks::run_first_attempts(shared, number);
        keep(client, |timers| &timers.tasks[number], look);
    },
    calls: |client, number| {
        let look = move |shared: &Shared| tasks::make_calls(shared, number);
        keep(client, |timers| &timers.calls[number], look);
    },
    waker: |client| {
        let look = |shared: &Shared| {
            shared.timers.run_wakers();
            None
        };
        keep(client, |timers| &timers.waker, look);
    },
    slow: |client| {
        let pause = Cell::new(None);
        keep(client, |timers| &timers.slow, |shared| slow_wait::explain(shared, &pause));
    },
};

/// A look whose wakers another thread runs.
fn elsewhere(shared: &Shared, look: fn(&Shared) -> Option<Instant>) -> Option<Instant> {
    shared.timers.wake_elsewhere(shared.now(), || look(shared))
}

/// The body of these threads: looks, and looks again at the time that the last look returned, or when woken, until the client
/// ends. A thread owns the client only during a look, so that the last handle can go at any time.
fn keep(
    client: &Weak<Shared>,
    sleeper: impl Fn(&Timers) -> &Sleeper,
    look: impl Fn(&Shared) -> Option<Instant>,
) {
    let mut panics = 0;
    let Some(signal) = client.upgrade().map(|shared| Arc::clone(sleeper(&shared.timers).signal())) else {
        return;
    };
    loop {
        let seen = signal.generation();
        let Some(shared) = client.upgrade() else { return };
        let timers = &shared.timers;
        sleeper(timers).awake();
        if timers.is_told_to_end() {
            shared.ledger.unlogged.log(|| false);
            return;
        }
        // A backend may panic. The unwinding puts back what was under way, see `Due`, `UnderWay` and `CleanupBatch`.
        let next = match catch_unwind(AssertUnwindSafe(|| look(&shared))) {
            Ok(next) => {
                panics = 0;
                next
            }
            Err(panic) => {
                panics += 1;
                panicked(&shared, sleeper(timers).name, panic);
                Some(shared.now() + backoff::pause(panics))
            }
        };
        let until = sleeper(timers).asleep(next);
        drop(shared); // possibly the last one: its drop raises the signal, and the upgrade fails
        signal.wait(seen, until);
    }
}

/// Starts the second thread, before the watchdog first waits for answers. The thread runs until the client ends.
fn watch_ends_meanwhile(timers: &Timers) {
    static NO_THREAD: LineLimit = LineLimit::new();
    if let Err(error) = timers.start(&timers.expiry)
        && NO_THREAD.count(1, Instant::now()).is_some()
    {
        // The watchdog itself reports them after the answers.
        log_line!(warn, "fairlock::watchdog",
            event = "no thread", error:% = error;
            "can't start the thread that reports losses in time: {error}"
        );
    }
}

/// Reports the holds whose time is over; returns when the next one ends.
fn report_ended(shared: &Shared) -> Option<Instant> {
    let (ledger, now) = (&shared.ledger, shared.now());
    let (mut ended, mut next) = (Vec::new(), None);
    ledger.registry.for_each(|claim| match claim.valid_until() {
        Some(until) if until <= now => ended.push(Arc::clone(claim)),
        until => next = earlier(next, until),
    });
    // The watchdog, which has the answer, or a caller may have found the loss too: the first of them reports it.
    for claim in &ended {
        if let Some(lost) = claim.loss(now) {
            ledger.lose_in_background(claim, lost.cause);
        }
    }
    // The watchdog logs these losses.
    shared.timers.due_by((!ended.is_empty()).then_some(now));
    next
}

/// After a panic the watchdog pauses, as after a request without an answer, so that a thread that panics each time does not spin.
/// At most one line a minute is logged.
fn panicked(shared: &Shared, name: &str, panic: Box<dyn Any + Send>) {
    let now = shared.now();
    shared.backlog.retries.failed(now, shared.config.longest_pause());
    let is_logged = shared.outage.panicked(now);
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    if is_logged {
        log_line!(error, "fairlock::watchdog",
            event = "panicked", thread = name, panic = message;
            "the thread {name} panicked, and goes on: {message}"
        );
    }
    std::mem::forget(panic); // its drop may panic as well
}
