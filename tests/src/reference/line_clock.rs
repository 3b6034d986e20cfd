//! The clock that judges only whether a waiter is present.
//!
//! It follows the server's, but from one sign of life of the line to the next it moves by at most half of the least time to
//! live in the line. Waiters speak every third of theirs, so a longer silence is not theirs: the server stood still, and must
//! not find on waking that all who wait are overdue.

use super::Millis;

/// Where it stands, when that was, and what half the least place's life is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineClock {
    /// What it showed at the last sign of life; none before the first.
    pub shown: Option<Millis>,
    /// When that was, by the server's clock.
    pub pulse: Millis,
    /// The least time to live of the places.
    pub ttl: Option<Millis>,
    /// When it shows this, no place that was spoken for with that time to live is present any more.
    pub ttl_until: Millis,
}

/// Until a place is spoken for.
const USUAL_TTL: Millis = 5000;

impl LineClock {
    /// The least time to live of the places.
    pub fn least_ttl(&self) -> Millis {
        self.ttl.unwrap_or(USUAL_TTL)
    }

    /// What it shows now. Looking does not move it.
    pub fn at(&self, now: Millis) -> Millis {
        match self.shown {
            None => now,
            Some(shown) => shown + now.saturating_sub(self.pulse).min(self.least_ttl() / 2),
        }
    }

    /// A sign of life: somebody in the line has spoken, or the lock was granted.
    pub fn pulse(&mut self, now: Millis) {
        let shown = self.at(now);
        *self = LineClock { shown: Some(shown), pulse: now, ttl: Some(self.least_ttl()), ..*self };
    }

    /// The same, by a place with this time to live. The least one counts until nobody who has spoken with it can be present.
    pub fn hear(&mut self, now: Millis, ttl: Millis, line_is_empty: bool) {
        self.pulse(now);
        let shown = self.at(now);
        if line_is_empty || ttl <= self.least_ttl() || shown >= self.ttl_until {
            (self.ttl, self.ttl_until) = (Some(ttl), shown + ttl);
        }
    }
}
