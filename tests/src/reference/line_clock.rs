//! The clock that judges only whether a waiter is present.
//!
//! It follows the server's, but from one sign of life of the line to the next it moves by at most half a place's time to
//! live. Waiters speak every third of it, so a longer silence is not theirs: the server stood still, and must not find
//! on waking that all who wait are overdue.

use super::Millis;

/// Where it stands, when that was, and what half a place's life is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineClock {
    /// What it showed at the last sign of life; none before the first.
    pub shown: Option<Millis>,
    /// When that was, by the server's clock.
    pub pulse: Millis,
    /// The time to live that was named last.
    pub ttl: Option<Millis>,
}

/// Until somebody names another.
const USUAL_TTL: Millis = 5000;

impl LineClock {
    /// The time to live that holds if the caller names none.
    pub fn ttl(&self, named: Option<Millis>) -> Millis {
        named.or(self.ttl).unwrap_or(USUAL_TTL)
    }

    /// What it shows now. Looking does not move it.
    pub fn at(&self, now: Millis, named: Option<Millis>) -> Millis {
        match self.shown {
            None => now,
            Some(shown) => shown + now.saturating_sub(self.pulse).min(self.ttl(named) / 2),
        }
    }

    /// A sign of life: somebody in the line has spoken, or the lock was granted.
    pub fn pulse(&mut self, now: Millis, named: Option<Millis>) {
        let shown = self.at(now, named);
        *self = LineClock { shown: Some(shown), pulse: now, ttl: Some(self.ttl(named)) };
    }
}
