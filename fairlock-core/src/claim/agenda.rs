//! What a claim needs next, when, and from whom. Only this module computes that: waiting callers, the watchdog, and every thread
//! that tells the watchdog of a change use it.

use std::time::{Duration, Instant};

use super::{Ask, Claim, ClaimState, Phase};

/// A renewal of a hold or a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: Instant,
    /// The renewal may be sent so much earlier, together with others.
    pub(super) early: Duration,
}

impl Planned {
    /// A renewal that may go with others in the last third of the time until `at`.
    pub(super) fn gathered(now: Instant, at: Instant) -> Planned {
        Planned { at, early: at.saturating_duration_since(now) / 3 }
    }

    /// A renewal now, and not earlier: a retry, or after a gap in the wake-ups.
    fn at_once(now: Instant) -> Planned {
        Planned { at: now, early: Duration::ZERO }
    }

    /// The same renewal, but no later than `latest`.
    fn by(self, latest: Instant) -> Planned {
        let sooner = self.at.saturating_duration_since(latest);
        Planned { at: self.at - sooner, early: self.early.saturating_sub(sooner) }
    }
}

/// How the watchdog renews a place or a hold.
#[derive(Clone, Copy, Default)]
pub(super) struct Upkeep {
    /// None: the server has nothing to renew, or will not be asked to.
    pub(super) planned: Option<Planned>,
    /// The last renewal was not answered.
    pub(super) failed: bool,
}

impl Upkeep {
    pub(super) fn answered(next: Planned) -> Upkeep {
        Upkeep { planned: Some(next), failed: false }
    }

    /// The watchdog asks again after its pause, for all unanswered requests of this client together. The deadlines run on.
    pub(super) fn not_answered(&mut self, now: Instant) {
        *self = Upkeep { planned: Some(Planned::at_once(now)), failed: true };
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        self.planned = self.planned.map(|_| Planned::at_once(now));
    }
}

/// What comes due for a claim if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The hold expires.
    End,
    /// The server was silent for too long, and there is an error that says so: the claim fails.
    GiveUp,
    /// To wake the claim's task: the time of the wait is over, or the release has no answer.
    Tell,
    /// To renew the place or the hold, unless a thread is renewing it.
    Renew,
    /// To ask for the request, unless a thread is asking.
    Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A thread that waits in a call.
    Caller,
    Watchdog,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    what: What,
    pub(super) at: Instant,
    /// The watchdog may do this so much earlier, together with others.
    pub(super) early: Duration,
    by: By,
}

/// All that a claim needs next.
pub(super) struct Agenda([Option<Due>; 4]);

impl Agenda {
    /// The item of this kind, for a caller or for the watchdog.
    pub(super) fn get(&self, what: What) -> Option<Due> {
        self.0.iter().flatten().find(|due| due.what == what).copied()
    }

    pub(super) fn of_watchdog(&self, what: What) -> Option<Due> {
        self.get(what).filter(|due| due.by == By::Watchdog)
    }

    /// When the watchdog next has something to do.
    pub(super) fn next_of_watchdog(&self) -> Option<Instant> {
        self.0.iter().flatten().filter(|due| due.by == By::Watchdog).map(|due| due.at).min()
    }
}

/// Before these times the watchdog repeats nothing that was not answered. They are the same for all claims of a client, so that
/// their retries go together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// For renewals. First attempts pause too: they have time, and would fail as well.
    pub(crate) renewals: Option<Instant>,
    /// For asking again.
    pub(crate) asks: Option<Instant>,
}

/// The earlier one of two times, if there is any.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Claim {
    /// `pauses`: the watchdog's pauses. A caller that asks has its own pause, `recheck_at`.
    pub(super) fn agenda(&self, state: &ClaimState, pauses: Pauses) -> Agenda {
        let not_before = |at: Instant, pause: Option<Instant>| pause.map_or(at, |pause| at.max(pause));
        let due = |by: By, what: What, at: Option<Instant>| {
            at.map(|at| Due { what, at, early: Duration::ZERO, by })
        };
        let contact = &state.contact;
        let renew = |planned: Option<Planned>| {
            let Planned { at, early } = planned.filter(|_| !contact.renewing)?;
            Some(Due { what: What::Renew, at: not_before(at, pauses.renewals), early, by: By::Watchdog })
        };
        match &state.phase {
            Phase::Held(held) => {
                // A grant that no poll takes is renewed for one lease only: a task that is never polled again must not keep the lock.
                let is_kept =
                    |planned: &Planned| !held.untaken || planned.at < held.since + self.config.lease;
                let end = due(By::Watchdog, What::End, Some(held.valid_until));
                Agenda([end, renew(held.renewal.planned.filter(is_kept)), None, None])
            }
            Phase::Waiting(waiting) => {
                let silent_until = self.silent_since(contact) + self.config.outage_limit;
                let ask_at = match contact.ask {
                    Ask::UnderWay { .. } => None,
                    Ask::Never => Some(self.since),
                    Ask::Answered if waiting.ask_now => Some(self.since),
                    Ask::Answered => Some(waiting.recheck_at.map_or(silent_until, |at| at.min(silent_until))),
                    // While attempts fail only the pause counts: a wake-up must not make a retry loop spin.
                    Ask::Failed(_) => waiting.recheck_at.map(|at| not_before(at, pauses.asks)),
                };
                let (is_asking, was_asked) = (contact.ask.is_under_way(), contact.ask != Ask::Never);
                // Of many tasks that ask at once, some may not have been asked for by then: these give up, too.
                let has_reason = waiting.last_error.is_some() || self.is_tasks() && !was_asked;
                let give_up_at = (has_reason && !is_asking).then_some(silent_until);
                // A task's wait asks at least once, as a thread's does.
                let tell_at = waiting.task_until.filter(|_| was_asked && !is_asking);
                let place = &waiting.place;
                let planned = place.renewal.planned;
                let planned =
                    planned.map(|planned| place.passed_recheck.map_or(planned, |by| planned.by(by)));
                // A thread that waits for the claim asks and gives up itself. A task does neither: the first attempt is made by the
                // threads for tasks, which attend to the claim until then.
                let asker = if waiting.attended == 0 { By::Watchdog } else { By::Caller };
                let quitter = if self.is_tasks() { By::Watchdog } else { asker };
                Agenda([
                    due(quitter, What::GiveUp, give_up_at),
                    due(By::Watchdog, What::Tell, tell_at),
                    renew(planned),
                    due(asker, What::Ask, ask_at),
                ])
            }
            Phase::Leaving(leaving) => {
                Agenda([due(By::Watchdog, What::Tell, leaving.task_until), None, None, None])
            }
            Phase::Lost(..) | Phase::Over(_) => Agenda([None; 4]),
        }
    }

    /// When the claim is next due for the watchdog, which may have its own reasons to be later: see [`Pauses`].
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due_at_of(&self.lock_state())
    }

    pub(super) fn due_at_of(&self, state: &ClaimState) -> Option<Instant> {
        self.agenda(state, Pauses::default()).next_of_watchdog()
    }
}
