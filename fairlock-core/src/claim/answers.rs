//! What the server's answers and pushes do to a claim; and attempts that were not answered: the server may carry one out long
//! after its repeat was answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::agenda::Planned;
use super::terms::valid_until;
use super::{AfterGivingUp, Claim, Failure, GrantedBy, Held, Phase, State, Terms};
use crate::backend::{Acquired, Answer, BackendError, BackendErrorKind, Renewal, Wait};
use crate::backoff;
use crate::ids::{FencingToken, LockKind};

/// A hold with less than two thirds of its lease is renewed when it has lasted this long.
const RAISED_AFTER: Duration = Duration::from_millis(100);

/// How long after the end of a lease the server is asked, so that the lease has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// At least so long after one ask that has failed comes the next, but for the first repeat.
const BETWEEN_ASKS: Duration = Duration::from_millis(10);

/// What follows from an answer to `acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterAnswer {
    /// Nothing, but the callers check the claim.
    Nothing,
    /// It is held.
    Granted(GrantedBy),
    /// It is over, and the server has nothing of it.
    Over,
    /// It stands at the tail of the line: its place was lost.
    PlaceLost,
    /// The callers had given up: the request may have reached the server after its withdrawal.
    Late,
    /// The same, but no attempt was ever sent.
    Unsent,
    /// It has failed, and the server may know of it: it is `Leaving`.
    Withdraw,
}

/// Whether a renewal was in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Punctuality {
    InTime,
    /// It took more than one attempt, or was sent when more than half of its time was over.
    Late,
}

/// What follows from an answer to `renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRenewal {
    Nothing,
    /// It is to be repeated.
    Unanswered,
    /// The hold is prolonged.
    Renewed(Punctuality),
    /// A place had become a hold, and this is the first news of it.
    Granted,
    /// The place is gone. The request asks again, and the answer says whether the place was put back.
    PlaceGone,
    /// The place is gone and has no ticket: the request goes to the tail.
    PlaceLost,
    /// The hold is over.
    HoldLost,
}

impl Claim {
    /// Takes the answer to an `acquire` that was sent at `sent`. The caller raises the signal afterwards.
    pub(crate) fn answered(&self, answer: Answer<Acquired>, sent: Instant, now: Instant) -> AfterAnswer {
        let mut state = self.lock_state();
        state.asking = false;
        state.sent |= !answer.as_ref().is_err_and(BackendError::is_unsent);
        let polled = state.polling;
        let first = state.heard.is_none();
        match state.phase {
            Phase::Waiting => {}
            // All callers left while it was under way, to be withdrawn once it is known what became of it.
            Phase::Leaving { held: None, .. } if !state.sent => return AfterAnswer::Unsent,
            Phase::Leaving { held: None, .. } | Phase::Over => return AfterAnswer::Late,
            // The watchdog's renewal or a push was quicker.
            _ => return AfterAnswer::Nothing,
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failed_to_ask(&mut state, error, sent, now),
        };
        state.hear(sent);
        match answer {
            Acquired::Granted { token, lease } => {
                let by = match (first, polled) {
                    (true, _) => GrantedBy::FirstAsk,
                    (false, false) => GrantedBy::WakeUp,
                    (false, true) => GrantedBy::Polling,
                };
                match self.grant(&mut state, token, sent, lease, now) {
                    true => AfterAnswer::Granted(by),
                    false if valid_until(sent, lease) <= now => {
                        self.granted_too_late(&mut state, first, lease, now)
                    }
                    false => AfterAnswer::Nothing,
                }
            }
            Acquired::Queued { rank, recheck_in, ticket, latest } => {
                let former = self.ticket.swap(ticket, Ordering::Relaxed);
                let is_lost = former > 0 && ticket != former;
                state.rank = Some(rank);
                state.stands(sent, latest);
                match self.keep_waiting(&mut state, now, recheck_in) {
                    AfterAnswer::Nothing if is_lost => AfterAnswer::PlaceLost,
                    after => after,
                }
            }
            Acquired::Busy { .. } if self.wait == Wait::No => {
                state.phase = Phase::Over;
                self.decided(&mut state);
                AfterAnswer::Over
            }
            Acquired::Busy { recheck_in } => self.keep_waiting(&mut state, now, recheck_in),
        }
    }

    /// A push says that this request was granted. Returns whether it is believed.
    pub(crate) fn pushed(&self, token: FencingToken, now: Instant) -> bool {
        let mut state = self.lock_state();
        if !matches!(state.phase, Phase::Waiting) {
            return false;
        }
        // It may overtake the answer to the `acquire` that took the place. Only that answer tells from when the place's time
        // counts.
        if state.placed.is_none() {
            state.pushed = Some(token);
            return false;
        }
        self.grant_pushed(&mut state, token, now)
    }

    /// A message says that the hold with this token was taken away. False: the claim does not wait. If it waits, the message may
    /// have overtaken the answer or the push that tells of the grant, which is then not believed.
    pub(crate) fn taken_early(&self, token: FencingToken) -> bool {
        let mut state = self.lock_state();
        let waits = matches!(state.phase, Phase::Waiting);
        if waits {
            state.taken = Some(token);
        }
        waits
    }

    /// Takes the answer to a renewal of a place or a hold that was sent at `sent`.
    pub(crate) fn renewed(
        &self,
        answer: Answer<Renewal>,
        sent: Instant,
        asked_lease: Duration,
        now: Instant,
    ) -> AfterRenewal {
        let mut state = self.lock_state();
        let (due, unrenewed) = (state.renew.map(|planned| planned.at), state.unrenewed);
        match (&mut state.phase, answer) {
            // Its time was over before the answer came. A belief that has ended never revives: a server that has forgotten the
            // hold may have granted the lock, and a later one may have let this claim in.
            (Phase::Held(held), Ok(Renewal::Renewed)) if held.valid_until <= now => AfterRenewal::Nothing,
            (Phase::Held(held), Ok(Renewal::Renewed)) => {
                if let Terms::Fixed(_) = self.terms {
                    // The holder itself asked for another full lease.
                    held.end = held.end.max(sent.checked_add(asked_lease));
                }
                let last_moment = due.map(|at| at + held.valid_until.saturating_duration_since(at) / 2);
                let late = unrenewed || last_moment.is_some_and(|at| sent > at);
                // Two renewals can be answered in the wrong order: the longer one counts.
                held.valid_until = held.valid_until.max(valid_until(sent, asked_lease));
                let done = held.end.is_some_and(|end| sent + asked_lease >= end);
                state.renew = (!done).then(|| Planned::gathered(sent, sent + asked_lease / 3));
                state.unrenewed = false;
                state.heard = state.heard.max(Some(sent));
                AfterRenewal::Renewed(if late { Punctuality::Late } else { Punctuality::InTime })
            }
            (Phase::Held(_), Ok(Renewal::Lost)) => AfterRenewal::HoldLost,
            // The answer to a heartbeat of the place: a push was quicker.
            (Phase::Held(_), Ok(Renewal::Waiting { .. } | Renewal::Granted { .. })) => AfterRenewal::Nothing,
            (Phase::Waiting, Ok(Renewal::Waiting { rank, recheck_in, latest })) => {
                state.hear(sent);
                state.stands(sent, latest);
                state.unrenewed = false;
                // A plain lock has no line, and the number is no rank.
                state.rank = (self.lock.kind != LockKind::Plain).then_some(rank);
                state.renew = Some(Planned::gathered(sent, sent + self.config.place_ttl / 3));
                state.recheck_in(now, recheck_in);
                AfterRenewal::Nothing
            }
            (Phase::Waiting, Ok(Renewal::Granted { token, lease })) => {
                state.hear(sent);
                state.renew = Some(Planned::gathered(sent, sent + self.config.place_ttl / 3)); // if it comes too late
                match self.grant(&mut state, token, sent, lease, now) {
                    true => AfterRenewal::Granted,
                    false => AfterRenewal::Nothing,
                }
            }
            (Phase::Waiting, Ok(Renewal::Lost)) => {
                state.in_line = false;
                state.ask_now = true;
                if self.ticket() == 0 { AfterRenewal::PlaceLost } else { AfterRenewal::PlaceGone }
            }
            // No answer, or an impossible one: it is asked again after the watchdog's pause, with all others of this client
            // that got none. The deadlines run on.
            (Phase::Held(_) | Phase::Waiting, answer) => {
                state.unrenewed = true;
                state.renew = Some(Planned::at_once(now));
                if let (Phase::Waiting, Err(error)) = (&state.phase, answer) {
                    state.last_error = Some(error);
                }
                AfterRenewal::Unanswered
            }
            (Phase::Lost(..) | Phase::Leaving { .. } | Phase::Over, _) => AfterRenewal::Nothing,
        }
    }

    /// An attempt that asks for this request has failed like this. It may begin that until a time
    /// from now, since it was sent before now. Returns whether the claim has ended by now, so that no one else will look.
    pub(crate) fn attempt_failed(&self, error: &BackendError, now: Instant) -> bool {
        let (BackendErrorKind::Unavailable, Some(ttl)) = (error.kind(), self.config.attempt_ttl) else {
            return false;
        };
        if error.is_unsent() {
            return false;
        }
        let mut state = self.lock_state();
        state.late_until = state.late_until.max(Some(now + ttl));
        matches!(state.phase, Phase::Lost(..) | Phase::Over)
    }

    /// An answer tells of a grant or a place of this request, which has this number. If it came after all that is known here, the
    /// hold was over when the attempt was carried out, or the request was withdrawn: then the request is withdrawn once more when
    /// the claim ends. Returns whether it has ended by now.
    pub(crate) fn told_of(&self, number: u64, now: Instant) -> bool {
        let mut state = self.lock_state();
        if matches!(state.phase, Phase::Waiting) || number <= state.latest {
            return false;
        }
        state.late_until = state.late_until.max(Some(now));
        matches!(state.phase, Phase::Lost(..) | Phase::Over)
    }

    /// The claim ends. Until then an attempt may begin what it asked for; none if all were answered, or another thread has taken
    /// it. The time may have passed: the attempt may have begun it before, after the server had carried out the release, and
    /// only the answer to that came late.
    pub(crate) fn take_late_until(&self) -> Option<Instant> {
        self.lock_state().late_until.take()
    }

    /// The same request once more, to be withdrawn: this claim has ended, and an attempt of it may begin anew.
    pub(crate) fn once_more(&self, now: Instant) -> Arc<Claim> {
        let Claim { lock, owner, request, wait, terms, takes, config, .. } = self;
        let claim = Claim::new(lock.clone(), owner.clone(), *wait, *terms, *takes, config, now);
        let mut state = claim.lock_state();
        (state.phase, state.sent) = (Phase::Leaving { held: None, wanted: false, lost: None }, true);
        drop(state);
        Arc::new(Claim { request: *request, ..claim })
    }

    /// The client is drained or shut down. None if the claim does not wait.
    pub(crate) fn fail_for_shutdown(&self) -> Option<AfterGivingUp> {
        let mut state = self.lock_state();
        if !matches!(state.phase, Phase::Waiting) {
            return None;
        }
        let after = if state.may_be_known() { AfterGivingUp::Withdraw } else { AfterGivingUp::Nothing };
        self.fail(&mut state, Failure::Shutdown);
        Some(after)
    }

    fn failed_to_ask(
        &self,
        state: &mut State,
        error: BackendError,
        sent: Instant,
        now: Instant,
    ) -> AfterAnswer {
        state.failures += 1;
        state.last_error = Some(error.clone());
        state.ask_now = true; // the reason for this ask has no answer yet
        // As renewals pause, see `Retries`. But a caller that joined this wait looks between two asks whether its time is over.
        let pause = backoff::pause(state.failures);
        state.recheck_at = Some((sent + pause).max(now + pause.min(BETWEEN_ASKS)));
        use BackendErrorKind::{Corrupt, Denied, InvalidConfig, InvalidName, Mismatch, Refused, Unavailable};
        // After an attempt without an answer it may have a place.
        let is_first = state.failures == 1 && state.heard.is_none();
        let hopeless = match error.kind() {
            Refused if is_first => true,
            Unavailable | Refused if self.wait == Wait::No => state.failures > 1,
            Unavailable | Refused => now >= self.silent_since(state) + self.config.outage_limit,
            _ => true,
        };
        if !hopeless {
            return AfterAnswer::Nothing;
        }
        let left_nothing =
            matches!(error.kind(), Corrupt | Denied | InvalidConfig | InvalidName | Mismatch | Refused);
        state.refused = is_first && left_nothing;
        self.fail(state, Failure::Backend(error));
        if state.sent { AfterAnswer::Withdraw } else { AfterAnswer::Over }
    }

    /// A lease that is shorter than a trip is not asked for without end.
    fn granted_too_late(
        &self,
        state: &mut State,
        is_first: bool,
        lease: Duration,
        now: Instant,
    ) -> AfterAnswer {
        let what = format!("the grant came too late to be used, its lease is {} ms", lease.as_millis());
        let error = BackendError::new(BackendErrorKind::Unavailable, what);
        let since = *state.too_late_since.get_or_insert(now);
        let may_repeat =
            if self.wait == Wait::No { is_first } else { now < since + self.config.outage_limit };
        if may_repeat {
            state.last_error = Some(error);
            return AfterAnswer::Nothing;
        }
        self.fail(state, Failure::Backend(error));
        AfterAnswer::Withdraw
    }

    fn keep_waiting(&self, state: &mut State, now: Instant, recheck_in: Duration) -> AfterAnswer {
        state.in_line = true;
        state.too_late_since = None;
        state.renew = state.heard.map(|heard| Planned::gathered(heard, heard + self.config.place_ttl / 3));
        state.recheck_in(now, recheck_in);
        match state.pushed.take() {
            Some(token) if self.grant_pushed(state, token, now) => AfterAnswer::Granted(GrantedBy::WakeUp),
            _ => AfterAnswer::Nothing,
        }
    }

    /// A pushed grant is good for the rest of the place. That counts from the last command that was answered "in line",
    /// since the server's deadline of the place can't be earlier; past it, the server is asked. An answer that tells of the
    /// grant itself does not count: it prolongs nothing, and where it came too late to be believed, a later push must not be
    /// believed either.
    fn grant_pushed(&self, state: &mut State, token: FencingToken, now: Instant) -> bool {
        // A push for an earlier place: its grant is over, and the place was put back with the same ticket. Another client may
        // hold the lock by now.
        if token.get() <= state.latest {
            return false;
        }
        let Some(base) = state.placed else { return false };
        let lease = self.config.place_ttl.min(self.terms.first_lease());
        self.grant(state, token, base, lease, now)
    }

    /// When a new hold is renewed for the first time: when two thirds of a full lease are left. A hold that was handed over
    /// has less from the start, the rest of its place's time, and is raised once it has lasted longer than most critical
    /// sections.
    pub(super) fn first_renewal(&self, held: &Held, now: Instant) -> Planned {
        let full = self.terms.next_lease(now, held.end);
        let left = held.valid_until.saturating_duration_since(now);
        let wait = left.saturating_sub(full / 3 * 2).max(RAISED_AFTER).min(left / 3);
        if wait <= RAISED_AFTER {
            // Hardly earlier, even with others: most sections are over by then, and would cost a script more.
            return Planned { at: now + wait, early: wait / 10 };
        }
        Planned::gathered(now, now + wait)
    }

    /// Makes the claim a hold, unless the grant is not to be believed.
    fn grant(
        &self,
        state: &mut State,
        token: FencingToken,
        base: Instant,
        lease: Duration,
        now: Instant,
    ) -> bool {
        if state.taken.take_if(|taken| *taken == token).is_some() {
            state.ask_now = true;
            return false;
        }
        let end = self.terms.end(base);
        let valid_until = valid_until(base, lease);
        if valid_until <= now {
            // Too late to be believed: the process stood still, or the answer took that long, or the rest of the lease is less
            // than its margin. Ask again, but not before it is over at the server, which would say the same.
            state.latest = state.latest.max(token.get());
            match (base + lease).saturating_duration_since(now) {
                Duration::ZERO => state.ask_now = true,
                rest => state.recheck_in(now, rest + PAST_THE_END),
            }
            return false;
        }
        let ends_here = end.is_some_and(|end| base + lease >= end);
        let held = Held { token, count: state.callers, leaked: 0, since: now, valid_until, end };
        if !state.hold(held, &self.config) {
            return false;
        }
        state.renew = (!ends_here).then(|| self.first_renewal(&held, now));
        state.unrenewed = false;
        state.in_line = false;
        state.rank = None;
        state.untaken = self.is_tasks();
        self.decided(state);
        true
    }

    /// Gives every caller this failure. A request that the server may know of is `Leaving`.
    pub(super) fn fail(&self, state: &mut State, failure: Failure) {
        state.failure = Some(failure);
        state.phase = if state.may_be_known() {
            Phase::Leaving { held: None, wanted: false, lost: None }
        } else {
            Phase::Over
        };
        self.decided(state);
    }
}

impl State {
    /// Whether the server may know of the request. What becomes of an attempt that is under way is not known yet.
    pub(super) fn may_be_known(&self) -> bool {
        self.sent || self.asking
    }

    fn hear(&mut self, sent: Instant) {
        self.heard = Some(self.heard.map_or(sent, |heard| heard.max(sent)));
        self.failures = 0;
        self.last_error = None;
        self.passed_recheck = self.passed_recheck.filter(|at| sent < *at); // a later command has rechecked
    }

    fn stands(&mut self, sent: Instant, latest: u64) {
        self.latest = self.latest.max(latest); // answers may come in another order
        self.placed = Some(self.placed.map_or(sent, |placed| placed.max(sent)));
    }

    fn recheck_in(&mut self, now: Instant, recheck_in: Duration) {
        self.recheck_at = now.checked_add(recheck_in);
    }
}
