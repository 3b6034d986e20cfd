//! The line clock, which only judges whether a waiter is present.
//!
//! It follows the server's clock. But between two heartbeats of the line it moves by at most half of the least time
//! to live in the line. Waiters send heartbeats every third of theirs, so a longer silence is not their fault: the
//! server stood still, and must not find all waiters overdue afterwards.

use super::Millis;

/// Its value, when that was set, and the least time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineClock {
    /// Its value at the last heartbeat; `None` before the first.
    pub shown: Option<Millis>,
    /// The server's time of that heartbeat.
    pub pulse: Millis,
    /// The least time to live of the places.
    pub ttl: Option<Millis>,
    /// At this value, no place with that time to live is present any more.
    pub ttl_until: Millis,
}

/// The time to live before the first heartbeat.
const USUAL_TTL: Millis = 5000;

impl LineClock {
    /// The least time to live of the places.
    pub fn least_ttl(&self) -> Millis {
        self.ttl.unwrap_or(USUAL_TTL)
    }

    /// The current value. Reading does not move the clock.
    pub fn at(&self, now: Millis) -> Millis {
        match self.shown {
            None => now,
            Some(shown) => shown + now.saturating_sub(self.pulse).min(self.least_ttl() / 2),
        }
    }

    /// By the server's clock, as `inspect` judges places: this one stands still while no waiter is heard.
    pub fn seen_at(&self, now: Millis) -> Millis {
        self.shown.map_or(now, |shown| shown + now.saturating_sub(self.pulse))
    }

    /// A heartbeat: a waiter was heard, or the lock was granted.
    pub fn pulse(&mut self, now: Millis) {
        let shown = self.at(now);
        *self = LineClock { shown: Some(shown), pulse: now, ttl: Some(self.least_ttl()), ..*self };
    }

    /// The same for a place with this time to live. The least one counts until no place with it can be present.
    pub fn hear(&mut self, now: Millis, ttl: Millis, line_is_empty: bool) {
        self.pulse(now);
        let shown = self.at(now);
        if line_is_empty || ttl <= self.least_ttl() || shown >= self.ttl_until {
            (self.ttl, self.ttl_until) = (Some(ttl), shown + ttl);
        }
    }
}
