//! Watches the ends of holds while the watchdog waits for answers: a silent server must not delay the report of a loss.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::round::earlier;
use crate::backoff;
use crate::logging::log_safely;
use crate::shared::Shared;

/// Ends the expiry thread however the work ends: the scope waits for that thread, also when the work panics.
struct WorkDone<'a> {
    shared: &'a Shared,
    over: &'a AtomicBool,
}

impl Drop for WorkDone<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.shared.schedule.signal().raise();
    }
}

impl Shared {
    /// Does work that waits for the server, with a thread beside it (`fairlock-expiry`) that reports losses meanwhile.
    pub(super) fn with_expiry_thread<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            self.config.clock.announce_background();
            let expiry = thread::Builder::new().name("fairlock-expiry".into());
            if let Err(error) = expiry.spawn_scoped(scope, || self.watch_expiry(&over)) {
                // The watchdog itself reports them after the answers.
                log_safely(|| {
                    log::warn!(
                        target: "fairlock::watchdog",
                        event = "no thread", error:% = error;
                        "no thread to report losses in time: {error}"
                    );
                });
            }
            let _done = WorkDone { shared: self, over: &over };
            work()
        })
    }

    /// The scope would pass a panic on to the watchdog, which must not end.
    fn watch_expiry(self: &Arc<Self>, over: &AtomicBool) {
        let _here = self.config.clock.attend_in_background();
        let mut panics = 0;
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.report_expired(over))) {
            panics += 1;
            self.watchdog_panicked(panic);
            self.config.clock.sleep(backoff::pause(panics));
        }
    }

    fn report_expired(self: &Arc<Self>, over: &AtomicBool) {
        loop {
            // Read first: a later grant, or the end of the work, raises the signal and ends the sleep at once.
            let seen = self.schedule.signal().epoch();
            if over.load(Ordering::Acquire) {
                return;
            }
            let now = self.now();
            let (mut ended, mut next) = (Vec::new(), None);
            self.registry.for_each(|claim| match claim.valid_until() {
                Some(until) if until <= now => ended.push(Arc::clone(claim)),
                until => next = earlier(next, until),
            });
            // The watchdog, which has the answer, and a caller may be at it too: the first reports it.
            for claim in &ended {
                if let Some(lost) = claim.loss(now) {
                    self.lose_in_background(claim, lost.cause);
                }
            }
            self.schedule.signal().wait(seen, next);
        }
    }
}
