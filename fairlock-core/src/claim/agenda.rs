//! What a claim needs next, when, and from whom, and the next step of a waiting caller, of the watchdog and of a task.
//!
//! Only this module computes when a claim next needs something: callers, the watchdog, and every thread that tells the watchdog of a
//! change use it.
//!
//! A task never blocks: it is polled, takes the hold, gives it up, and hears how the release ends. Its claim has one caller, who
//! never asks: a thread for tasks makes the first attempt, and attends to the claim until then. Afterwards the watchdog asks. What
//! ends the task's wait sets the flag of the task's slot under the claim's mutex, and [`Claim::raise`] wakes the task without that
//! mutex.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Ask, Claim, ClaimState, End, Failure, GiveUp, Leaving, Phase};
use crate::backend::{BackendError, Condition, Wait};
use crate::error::LostCause;
use crate::ids::FencingToken;
use crate::time::CancelToken;

/// How long a caller waits.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) wait: Wait,
    pub(crate) deadline: Option<Instant>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) condition: Condition,
    /// A request keeps its place when the wait is over; a call leaves the queue.
    pub(crate) keeps_place: bool,
}

/// What a caller that waits for a claim does next.
#[derive(Debug)]
pub(crate) enum CallerStep {
    /// The hold is the caller's.
    Take { token: FencingToken },
    /// Ask the server: no other thread is asking.
    Ask,
    /// Sleep until the signal is raised, or until this time.
    Sleep(Option<Instant>),
    /// The wait is over, and the place is kept.
    NotYet,
    /// The hold was granted, and expired before the caller took it: the caller gives the hold up and asks anew.
    TooLate,
    /// The lock was not granted.
    NotGranted,
    /// The request was declined: its condition was not met.
    Declined,
    /// The claim has failed.
    Failed(Failure),
    /// The caller's time is over, or its wait was cancelled. The claim no longer counts this caller.
    GiveUp(GiveUp),
}

/// What a claim has at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Holds,
    Waits,
}

/// What the watchdog does next for a claim.
#[derive(Debug)]
pub(crate) enum WatchdogStep {
    /// Nothing until this time.
    Wait(Option<Instant>),
    /// The hold has expired.
    Lose(LostCause),
    /// Ask, since no caller waits for the claim. The ask has been due since this time.
    Ask(Instant),
    /// The server was silent for too long, and the claim has failed; or the task's time is over. The claim is `Leaving` if the
    /// server may know of the request.
    GivenUp,
    /// A task has waited long enough for the end of its release.
    Tell,
    RenewPlace {
        /// The lease of the hold, if the renewal finds the lock free.
        lease: Duration,
    },
    RenewHold {
        token: FencingToken,
        count: u32,
        lease: Duration,
    },
}

/// The times that a round of the watchdog goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTimes {
    pub(crate) now: Instant,
    /// How long this round may take: what comes due in that time is done as well.
    pub(crate) meanwhile: Duration,
    pub(crate) pauses: Pauses,
}

impl RoundTimes {
    fn renews(&self, due: Due) -> bool {
        let may = self.pauses.renewals.is_none_or(|pause| pause <= self.now);
        may && due.at <= self.now + due.early.max(self.meanwhile)
    }
}

impl Claim {
    /// What a caller with this patience does next.
    pub(crate) fn caller_step(&self, patience: &Patience, now: Instant) -> CallerStep {
        let state = &mut *self.lock_state();
        let ask = state.contact.ask;
        match &mut state.phase {
            Phase::Held(held) if held.is_certain(now) => {
                held.untaken = false; // of a task that adopts
                return CallerStep::Take { token: held.token };
            }
            Phase::Held(_) | Phase::Lost(..) => return CallerStep::TooLate,
            Phase::Over(End { declined: Some(_), .. }) => return CallerStep::Declined,
            Phase::Leaving(Leaving { end: End { failure, .. }, .. }) | Phase::Over(End { failure, .. }) => {
                return failure.clone().map_or(CallerStep::NotGranted, CallerStep::Failed);
            }
            Phase::Waiting(_) => {}
        }
        let cancelled = patience.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        // A wait of zero that joins a longer wait only checks the claim; any other call asks at least once.
        let only_checks = patience.wait == Wait::No && self.wait != Wait::No;
        let is_over = patience.deadline.is_some_and(|deadline| deadline <= now);
        let late = is_over && ask != Ask::Never && !ask.is_under_way();
        if (only_checks || late) && patience.keeps_place && !cancelled {
            return CallerStep::NotYet;
        }
        if cancelled || only_checks || late {
            let wanted = patience.wait != Wait::No && !cancelled;
            return CallerStep::GiveUp(self.give_up(state, cancelled, wanted));
        }
        if ask.is_under_way() {
            return CallerStep::Sleep(None); // bounded by the backend's response time-out: the asker raises the signal
        }
        let asks_at = self.agenda(state, Pauses::default()).get(What::Ask).map(|due| due.at);
        match &mut state.phase {
            Phase::Waiting(waiting) if asks_at.is_some_and(|at| at <= now) => {
                waiting.begin_to_ask(&mut state.contact);
                CallerStep::Ask
            }
            _ => CallerStep::Sleep(earlier(asks_at, patience.deadline)),
        }
    }

    /// What the watchdog does now. Renewals that may go early do so: then many share a round trip.
    pub(crate) fn watchdog_step(&self, times: &RoundTimes) -> WatchdogStep {
        let state = &mut *self.lock_state();
        let now = times.now;
        let agenda = self.agenda(state, times.pauses);
        let due = |what| agenda.of_watchdog(what).filter(|due| due.at <= now);
        if due(What::End).is_some()
            && let Phase::Held(held) = &state.phase
        {
            return WatchdogStep::Lose(self.terms.cause_of_end(now, held.end));
        }
        if due(What::GiveUp).is_some() {
            self.give_up_asking(state);
            return WatchdogStep::GivenUp;
        }
        if due(What::Tell).is_some() {
            return self.end_wait_of_task(state, now);
        }
        let asks = due(What::Ask);
        // An ask renews the place as well, so only a renewal that can't wait goes before it.
        let renews = |due: &Due| times.renews(*due) && (asks.is_none() || due.at <= now);
        if agenda.of_watchdog(What::Renew).as_ref().is_some_and(renews) {
            state.contact.renewing = true;
            return match &state.phase {
                Phase::Held(held) => WatchdogStep::RenewHold {
                    token: held.token,
                    count: held.count,
                    lease: self.terms.next_lease(now, held.end),
                },
                _ => WatchdogStep::RenewPlace { lease: self.terms.first_lease() },
            };
        }
        match asks {
            Some(due) => WatchdogStep::Ask(due.at),
            None => WatchdogStep::Wait(agenda.next_of_watchdog()),
        }
    }

    /// Whether an outage that began at `since` concerns this claim: no command that was sent since then was answered. While some
    /// servers answer (`since` is None): whether the claim's last command failed.
    pub(crate) fn is_concerned(&self, since: Option<Instant>) -> Option<Standing> {
        let state = self.lock_state();
        let (standing, failed) = match &state.phase {
            Phase::Held(held) => (Standing::Holds, held.renewal.failed),
            Phase::Waiting(waiting) => {
                let failed = waiting.place.renewal.failed || state.contact.ask.failures() > 0;
                (Standing::Waits, failed)
            }
            Phase::Lost(..) | Phase::Leaving(_) | Phase::Over(_) => return None,
        };
        let is_unheard = |since: Instant| state.contact.heard.is_none_or(|heard| heard < since);
        (failed || since.is_some_and(is_unheard)).then_some(standing)
    }
}

/// What a task finds when it looks at its claim.
#[derive(Debug)]
pub(crate) enum TaskStep {
    /// The hold is the task's. The watchdog has to look at the claim by this time.
    Take {
        token: FencingToken,
        due_at: Option<Instant>,
    },
    Pending,
    /// The hold was granted, and ended before the task was polled: the task gives the hold up and asks anew.
    TooLate,
    NotGranted,
    Failed(Failure),
}

/// How a release stands.
#[derive(Debug)]
pub(crate) enum ReleaseStep {
    /// Under way; with the error of the last attempt, if it has failed.
    UnderWay(Option<BackendError>),
    Released,
    /// The server says that the hold was over.
    Lost(LostCause),
    /// The server was not told, and is not going to be.
    Failed(Failure),
}

impl Claim {
    /// The claim of a task whose wait is over at this time.
    pub(crate) fn of_task(self, until: Option<Instant>) -> Claim {
        if let Phase::Waiting(waiting) = &mut self.lock_state().phase {
            waiting.task_until = until;
        }
        Claim { task: Some(Box::default()), ..self }
    }

    pub(crate) fn is_tasks(&self) -> bool {
        self.task.is_some()
    }

    /// Each poll does this before it looks at the claim: what happens after that look wakes the task.
    pub(crate) fn register(&self, waker: &Waker) {
        if let Some(task) = &self.task {
            task.register(waker);
        }
    }

    /// See [`TaskSlot::take`](crate::time::TaskSlot::take).
    #[must_use]
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        self.task.as_ref().and_then(|task| task.take())
    }

    /// Under the claim's mutex, or where no state is changed.
    pub(super) fn task_is_due(&self) {
        if let Some(task) = &self.task {
            task.is_due();
        }
    }

    /// What a task that waits for the lock does next.
    pub(crate) fn task_step(&self, now: Instant) -> TaskStep {
        let state = &mut *self.lock_state();
        match &mut state.phase {
            Phase::Waiting(_) => TaskStep::Pending,
            Phase::Held(held) if held.is_certain(now) => {
                held.untaken = false;
                TaskStep::Take { token: held.token, due_at: self.due_at_of(state) }
            }
            Phase::Held(_) | Phase::Lost(..) => TaskStep::TooLate,
            Phase::Leaving(Leaving { end: End { failure, .. }, .. }) | Phase::Over(End { failure, .. }) => {
                failure.clone().map_or(TaskStep::NotGranted, TaskStep::Failed)
            }
        }
    }

    /// The task's time is over: a wait gives up, and a grant that crosses this is passed on.
    fn end_wait_of_task(&self, state: &mut ClaimState, now: Instant) -> WatchdogStep {
        self.task_is_due();
        if let Phase::Leaving(leaving) = &mut state.phase {
            leaving.task_until = None;
            return WatchdogStep::Tell;
        }
        let silence = self.silence_of(&state.contact, now);
        let error = self.give_up(state, false, false).error;
        let failure = error.or(silence).map(Failure::Backend);
        if let Phase::Leaving(Leaving { end, .. }) | Phase::Over(end) = &mut state.phase {
            end.failure = failure;
        }
        WatchdogStep::GivenUp
    }

    /// A task waits for the end of its release, until this time.
    pub(crate) fn tell_by(&self, at: Instant) {
        if let Phase::Leaving(leaving) = &mut self.lock_state().phase {
            leaving.task_until = Some(at);
        }
    }

    /// For a task that has given up its hold.
    pub(crate) fn release_step(&self) -> ReleaseStep {
        match &self.lock_state().phase {
            Phase::Leaving(leaving) => ReleaseStep::UnderWay(leaving.last_error.clone()),
            Phase::Over(End { failure: Some(failure), .. }) => ReleaseStep::Failed(failure.clone()),
            Phase::Over(End { lost: Some(cause), .. }) => ReleaseStep::Lost(*cause),
            _ => ReleaseStep::Released,
        }
    }

    /// The server is not told of the end any more. A task that waits for its release gets the reason once the claim is retired.
    pub(crate) fn abandon_end(&self, failure: Failure) {
        if let Phase::Leaving(leaving) = &mut self.lock_state().phase
            && self.is_tasks()
        {
            leaving.end.failure = Some(failure);
        }
    }
}

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

    fn of_watchdog(&self, what: What) -> Option<Due> {
        self.get(what).filter(|due| due.by == By::Watchdog)
    }

    /// When the watchdog next has something to do.
    fn next_of_watchdog(&self) -> Option<Instant> {
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
