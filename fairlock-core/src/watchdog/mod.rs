//! The one thread of a client that keeps its promises while its callers sleep or work: it renews holds and places,
//! many in one round trip, notices losses in time, asks for requests on which no caller waits, and repeats releases
//! and withdrawals that the server did not answer.

mod expiry;
mod round;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use crate::backoff;
use crate::logging::log_safely;
use crate::schedule::longest_pause;
use crate::shared::Shared;

/// The body of the thread. It owns the client only during a round, so that the last handle can go at any time.
pub(crate) fn watch(client: &Weak<Shared>) {
    let mut panics = 0;
    let Some(signal) = client.upgrade().map(|shared| shared.schedule.signal().clone()) else { return };
    loop {
        let seen = signal.epoch();
        let Some(shared) = client.upgrade() else { return };
        let schedule = &shared.schedule;
        // Before it looks whether it is to end: if so it stays awake, and what comes due later raises the signal.
        schedule.awake();
        if schedule.is_told_to_end() {
            schedule.log_losses(|| false);
            return;
        }
        // A backend may panic. What was under way is put back as it unwinds, see `Due`, `Asking` and `Taken`.
        let next = match catch_unwind(AssertUnwindSafe(|| shared.round())) {
            Ok(next) => {
                panics = 0;
                next
            }
            Err(panic) => {
                panics += 1;
                shared.watchdog_panicked(panic);
                Some(shared.now() + backoff::pause(panics))
            }
        };
        schedule.asleep(next);
        drop(shared); // possibly the last one: its drop raises the signal, and the upgrade fails
        signal.wait(seen, next);
    }
}

impl Shared {
    /// The round's requests wait for a pause, as if they had not been answered, so that a watchdog that panics each time does
    /// not spin. At most one line a minute is logged.
    fn watchdog_panicked(&self, panic: Box<dyn Any + Send>) {
        let (now, longest) = (self.now(), longest_pause(&self.config));
        let is_logged = self.schedule.with_rounds(|rounds| rounds.panicked(now, longest));
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        if is_logged {
            log_safely(|| {
                log::error!(
                    target: "fairlock::watchdog",
                    event = "panicked", panic = message;
                    "the watchdog panicked, and goes on: {message}"
                );
            });
        }
        std::mem::forget(panic); // its drop may panic as well
    }
}
