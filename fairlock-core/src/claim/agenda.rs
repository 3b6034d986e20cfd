//! When a claim is next to be looked after, and for what. This is the only place where that is worked out: callers who
//! wait, the watchdog, and whoever tells the watchdog of a change all go by it.

use std::time::{Duration, Instant};

use super::{Phase, State};

/// A renewal of a hold or a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: Instant,
    /// It may be sent so much sooner, together with others.
    pub(super) early: Duration,
}

impl Planned {
    /// One that may go along with others in the last third of the time until then.
    pub(super) fn gathered(now: Instant, at: Instant) -> Planned {
        Planned { at, early: at.saturating_duration_since(now) / 3 }
    }

    /// Now, and not before: a retry, or a look after a gap.
    pub(super) fn at_once(now: Instant) -> Planned {
        Planned { at: now, early: Duration::ZERO }
    }

    /// The same, at `latest` at the latest.
    fn by(self, latest: Instant) -> Planned {
        let sooner = self.at.saturating_duration_since(latest);
        Planned { at: self.at - sooner, early: self.early.saturating_sub(sooner) }
    }
}

/// What is to come for a claim if nothing comes in between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agenda {
    /// The server is to be asked for the request, since nobody does so yet.
    pub(super) ask: Option<Instant>,
    /// The place or the hold is to be renewed, since nobody does so yet.
    pub(super) renew: Option<Planned>,
    /// The hold is over.
    pub(super) end: Option<Instant>,
    /// Nothing more is hoped for: the server was silent for too long, and there is an error that says so.
    pub(super) give_up: Option<Instant>,
}

/// Before when the watchdog repeats nothing that was not answered: the same for all claims of a client, so that their
/// retries go together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// For renewals, also the first attempts: they have time enough, and would each be an attempt in vain.
    pub(crate) renewals: Option<Instant>,
    /// For asking again.
    pub(crate) asks: Option<Instant>,
}

impl Agenda {
    /// When the watchdog has something to do. While a caller waits for the claim, that caller asks and gives up.
    pub(super) fn for_watchdog(self, is_attended: bool) -> Option<Instant> {
        let asks = [self.ask, self.give_up].into_iter().flatten().filter(|_| !is_attended);
        let keeps = [self.renew.map(|planned| planned.at), self.end].into_iter().flatten();
        asks.chain(keeps).min()
    }
}

impl State {
    /// With `pauses` as the watchdog keeps them. A caller who asks has pauses of its own, and needs none of these.
    pub(super) fn agenda(&self, outage_limit: Duration, pauses: Pauses) -> Agenda {
        let not_before = |at: Instant, pause: Option<Instant>| pause.map_or(at, |pause| at.max(pause));
        let renew = self.renew.filter(|_| !self.renewing).map(|planned| {
            let planned = self.looks_by.map_or(planned, |by| planned.by(by));
            Planned { at: not_before(planned.at, pauses.renewals), ..planned }
        });
        match &self.phase {
            Phase::Held(held) => Agenda { renew, end: Some(held.valid_until), ..Agenda::default() },
            Phase::Waiting => {
                let silent_until = self.silent_since() + outage_limit;
                let ask = match self.failures {
                    _ if self.asking => None,
                    0 if !self.asked || self.look => Some(self.since),
                    0 => Some(self.look_at.map_or(silent_until, |at| at.min(silent_until))),
                    // While the server fails, only the pause counts: a wake-up must not make a retry loop spin.
                    _ => self.look_at.map(|at| not_before(at, pauses.asks)),
                };
                let give_up = (self.last_error.is_some() && !self.asking).then_some(silent_until);
                Agenda { ask, renew: renew.filter(|_| self.in_line), end: None, give_up }
            }
            Phase::Lost(..) | Phase::Leaving { .. } | Phase::Over => Agenda::default(),
        }
    }

    /// Since when the server has said nothing about this request.
    pub(super) fn silent_since(&self) -> Instant {
        self.heard.unwrap_or(self.since)
    }
}
