//! Looks at the ends of holds while the watchdog waits for answers: a server that says nothing must not keep a loss from
//! being told in time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::patrol::earlier;
use crate::backoff;
use crate::say::say;
use crate::shared::Shared;

/// Ends the sentry however the work ends: the scope waits for it, also when the work panics.
struct Relief<'a> {
    shared: &'a Shared,
    over: &'a AtomicBool,
}

impl Drop for Relief<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.shared.watchdog.signal.raise();
    }
}

impl Shared {
    /// Does what needs answers of the server, with a thread beside it (`fairlock-sentry`) that tells of losses meanwhile.
    pub(super) fn with_sentry<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            self.config.clock.announce_background();
            let sentry = thread::Builder::new().name("fairlock-sentry".into());
            if let Err(error) = sentry.spawn_scoped(scope, || self.keep_sentry(&over)) {
                // The watchdog itself tells of them after the answers.
                say(|| {
                    log::warn!(
                        target: "fairlock::watchdog",
                        event = "no thread", error:% = error;
                        "no thread to tell of losses in time: {error}"
                    );
                });
            }
            let _relief = Relief { shared: self, over: &over };
            work()
        })
    }

    /// A panic must not end the watchdog as well, for whom the scope would pass it on.
    fn keep_sentry(self: &Arc<Self>, over: &AtomicBool) {
        let _here = self.config.clock.attend_in_background();
        let mut panics = 0;
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.stand_sentry(over))) {
            panics += 1;
            self.watchdog_panicked(panic);
            self.config.clock.sleep(backoff::pause(panics));
        }
    }

    fn stand_sentry(self: &Arc<Self>, over: &AtomicBool) {
        loop {
            // Read before the look: a grant after it, or the end of the work, raises the signal, and the sleep ends at once.
            let seen = self.watchdog.signal.epoch();
            if over.load(Ordering::Acquire) {
                return;
            }
            let now = self.now();
            let (mut ended, mut next) = (Vec::new(), None);
            self.registry.for_each(|claim| match claim.valid_until() {
                Some(until) if until <= now => ended.push(Arc::clone(claim)),
                until => next = earlier(next, until),
            });
            // The watchdog, which finds the answer, and a caller may be at it too: who is first tells of it.
            for claim in &ended {
                if let Some(lost) = claim.loss(now) {
                    self.lose_in_background(claim, lost.cause);
                }
            }
            self.watchdog.signal.wait(seen, next);
        }
    }
}
