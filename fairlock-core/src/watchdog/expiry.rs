//! Watches the ends of holds beside the watchdog, which may be waiting for answers: a silent server must not delay the
//! report of a loss.
//!
//! It sleeps until the first hold ends that it has seen. A renewal makes it late by nothing and costs it one look in vain; a
//! grant wakes it only if that hold ends earlier.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::keep;
use crate::claim::earlier;
use crate::logging::log_line;
use crate::shared::Shared;

/// The body of the thread.
fn watch_ends(client: &Weak<Shared>) {
    keep(client, |schedule| &schedule.expiry, Shared::report_ended);
}

impl Shared {
    /// Before the watchdog waits for answers. It begins once, and goes on until the client ends.
    pub(super) fn watch_ends_meanwhile(self: &Arc<Self>) {
        let watch = || {
            let client = Arc::downgrade(self);
            move || watch_ends(&client)
        };
        if let Err(error) = self.schedule.start(&self.schedule.expiry, &self.config.clock, watch) {
            // The watchdog itself reports them after the answers.
            log_line!(warn, "fairlock::watchdog",
                event = "no thread", error:% = error;
                "no thread to report losses in time: {error}"
            );
        }
    }

    /// Reports the holds whose time is over; returns when the next one ends.
    fn report_ended(self: &Arc<Self>) -> Option<Instant> {
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
        // The watchdog writes their lines.
        self.schedule.due_by((!ended.is_empty()).then_some(now));
        next
    }
}
