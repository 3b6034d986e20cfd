//! The phase `Waiting`: what answers, pushes and heartbeats change, and how a wait ends without the lock: the callers give up, the
//! task's time is over, the server does not answer, or the client stops.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::agenda::{Planned, Upkeep};
use super::held::valid_until;
use super::{
    AfterRenewal, AnswerContext, Ask, Claim, ClaimState, Contact, End, Failure, Held, Leaving, Phase, Then,
};
use crate::backend::{Acquired, Answer, BackendError, BackendErrorKind, Renewal, Wait};
use crate::ids::{FencingToken, LockKind};
use crate::time;

/// The server is asked so long after the end of a lease, so that the lease has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// The least time between a failed ask and its repeat, but for the first repeat.
const BETWEEN_ASKS: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct Waiting {
    /// How many blocked callers and requests want the hold; at the grant each gets one hold.
    pub(super) callers: u32,
    /// How many of these callers wait in a call right now. While one does, the caller asks; else the watchdog asks.
    pub(super) attended: u32,
    /// Until when the claim's task waits.
    pub(super) task_until: Option<Instant>,
    /// Each gets a message at the end of the wait.
    pub(super) decision_senders: Vec<Sender<()>>,
    pub(super) place: StandingPlace,
    /// There is a reason to ask now: a wake-up, or an attempt that failed.
    pub(super) ask_now: bool,
    /// When to ask without a wake-up.
    pub(super) recheck_at: Option<Instant>,
    /// The error of the last attempt or heartbeat, if nothing was answered since.
    pub(super) last_error: Option<BackendError>,
    /// The time of the first of the grants that came too late to be believed, if no other answer came since.
    too_late_since: Option<Instant>,
    /// Since when each ask is denied. Heartbeats may be answered all the time: they need fewer rights.
    denied_since: Option<Instant>,
    /// The token of a push that overtook the answer to `acquire`.
    pushed: Option<FencingToken>,
    /// The token of a hold that was taken away before this client learned of its grant.
    taken: Option<FencingToken>,
}

/// A place in the queue, or an interest in the wake-ups of a plain lock.
#[derive(Default)]
pub(super) struct StandingPlace {
    pub(super) rank: Option<u64>,
    /// When the latest command whose answer was "in the queue" was sent. The time to live of the place counts from then.
    since: Option<Instant>,
    /// The place's heartbeats: planned while the server keeps the place.
    pub(super) renewal: Upkeep,
    /// When to recheck in place of a claim that has left. The heartbeat rechecks, and comes no later than this.
    pub(super) passed_recheck: Option<Instant>,
}

/// How the client learned of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantedBy {
    /// By the first ask.
    FirstAsk,
    /// By a wake-up, or by an ask that a wake-up caused.
    WakeUp,
    /// By an ask without a wake-up: the message was lost, or the holder died.
    Polling,
}

impl GrantedBy {
    /// For the log and the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            GrantedBy::FirstAsk => "at_once",
            GrantedBy::WakeUp => "wake_up",
            GrantedBy::Polling => "polling",
        }
    }
}

/// What follows from an answer to `acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterAnswer {
    /// Nothing, but the callers check the claim.
    Nothing,
    /// The claim is held.
    Granted(GrantedBy),
    /// The claim is over, and the server has nothing of the request.
    Over,
    /// The request stands at the tail of the queue: its place was lost.
    PlaceLost,
    /// The callers had given up: the request may have reached the server after its withdrawal.
    Late,
    /// The same, but no attempt was ever sent.
    Unsent,
    /// The claim has failed, and is `Leaving`: the server may know of the request.
    Withdraw,
}

/// How a caller stopped waiting.
#[derive(Debug)]
pub(crate) struct GiveUp {
    pub(crate) cancelled: bool,
    pub(crate) after: AfterGivingUp,
    /// The last attempt was not answered.
    pub(crate) error: Option<BackendError>,
}

/// What a caller that gives up leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterGivingUp {
    /// Other callers of the same owner still wait.
    OthersWait,
    /// No other caller waits, and the server has to be told: the claim is `Leaving`.
    Withdraw,
    /// No other caller waits, and the server was never asked: the claim is `Over`.
    Nothing,
}

impl Claim {
    /// Takes the answer to an `acquire` that was sent at `sent`. The caller raises the signal afterwards.
    pub(crate) fn answered(&self, answer: Answer<Acquired>, sent: Instant, now: Instant) -> AfterAnswer {
        let state = &mut *self.lock_state();
        let contact = &mut state.contact;
        let ask = contact.ask;
        contact.end_ask();
        contact.sent |= !answer.as_ref().is_err_and(BackendError::is_unsent);
        let waiting = match &mut state.phase {
            Phase::Waiting(waiting) => waiting,
            // All callers left while the ask was under way; the request is withdrawn now that the ask has an outcome.
            Phase::Leaving(Leaving { held: None, .. }) if !contact.sent => return AfterAnswer::Unsent,
            Phase::Leaving(Leaving { held: None, .. }) | Phase::Over(_) => return AfterAnswer::Late,
            // A heartbeat or a push was quicker.
            Phase::Held(_) | Phase::Lost(..) | Phase::Leaving(_) => return AfterAnswer::Nothing,
        };
        let context = AnswerContext { claim: self, contact, sent, now };
        let then = match answer {
            Ok(answer) => waiting.answered(context, answer, ask),
            Err(error) => waiting.not_answered(context, error, ask.failures() + 1),
        };
        self.follow(state, then)
    }

    /// A push says that this request was granted. Returns whether it is believed.
    pub(crate) fn pushed(&self, token: FencingToken, now: Instant) -> bool {
        let state = &mut *self.lock_state();
        let Phase::Waiting(waiting) = &mut state.phase else { return false };
        // A push may overtake the answer to the `acquire` that took the place. Only that answer tells from when the place's
        // time counts.
        let Some(sent) = waiting.place.since else {
            waiting.pushed = Some(token);
            return false;
        };
        let next = waiting.granted_by_push(
            &mut AnswerContext { claim: self, contact: &mut state.contact, sent, now },
            token,
        );
        let is_believed = next.is_some();
        self.follow(state, (is_believed, next))
    }

    /// A message says that the hold with this token was taken away. False if the claim does not wait. If the claim waits, the
    /// message may have overtaken the answer or push of the grant: that grant is then ignored.
    pub(crate) fn taken_early(&self, token: FencingToken) -> bool {
        let Phase::Waiting(waiting) = &mut self.lock_state().phase else { return false };
        waiting.taken = Some(token);
        true
    }

    /// A caller begins to wait. While a caller waits, the caller asks; else the watchdog asks.
    pub(crate) fn attend(&self) {
        if let Phase::Waiting(waiting) = &mut self.lock_state().phase {
            waiting.attended += 1;
        }
    }

    /// The caller has stopped waiting. Returns when the claim is next due for the watchdog.
    pub(crate) fn stop_attending(&self) -> Option<Instant> {
        let state = &mut *self.lock_state();
        if let Phase::Waiting(waiting) = &mut state.phase {
            waiting.attended -= 1;
        }
        self.due_at_of(state)
    }

    /// A wake-up says that the lock may be free. Returns whether the watchdog has to be told, since no caller waits.
    pub(crate) fn wake(&self) -> bool {
        let mut state = self.lock_state();
        let Phase::Waiting(waiting) = &mut state.phase else { return false };
        waiting.ask_now = true;
        let unattended = waiting.attended == 0;
        drop(state);
        self.raise();
        unattended
    }

    /// Sends a message to `sender` when the request is granted or has failed.
    pub(crate) fn tell_when_decided(&self, sender: Sender<()>) {
        match &mut self.lock_state().phase {
            Phase::Waiting(waiting) => waiting.decision_senders.push(sender),
            _ => _ = sender.try_send(()),
        }
    }

    pub(crate) fn rank(&self) -> Option<u64> {
        match &self.lock_state().phase {
            Phase::Waiting(waiting) => waiting.place.rank,
            _ => None,
        }
    }

    /// Whether the claim waits, and the server knows of the request.
    pub(crate) fn is_in_queue(&self) -> bool {
        matches!(&self.lock_state().phase, Phase::Waiting(waiting) if waiting.place.renewal.planned.is_some())
    }

    /// Has the claim recheck at `at` for another claim. False: this claim has no place in the queue.
    pub(crate) fn recheck_by(&self, at: Instant) -> bool {
        match &mut self.lock_state().phase {
            Phase::Waiting(Waiting { place, .. }) if place.renewal.planned.is_some() => {
                place.passed_recheck = Some(place.passed_recheck.map_or(at, |by| by.min(at)));
                true
            }
            _ => false,
        }
    }

    /// The claim waits no longer: takes the time when it would have rechecked.
    pub(crate) fn take_recheck(&self) -> Option<Instant> {
        self.lock_state().recheck.take()
    }

    /// A request is dropped: one caller fewer wants the claim. None if the claim does not wait.
    pub(crate) fn give_up_request(&self) -> Option<GiveUp> {
        let state = &mut *self.lock_state();
        matches!(state.phase, Phase::Waiting(_)).then(|| self.give_up(state, true, false))
    }

    /// One caller of a waiting claim stops waiting; the last caller leaves the queue. `wanted`: the caller still takes a lock
    /// that was granted in this very moment.
    pub(super) fn give_up(&self, state: &mut ClaimState, cancelled: bool, wanted: bool) -> GiveUp {
        let mut given_up = GiveUp { cancelled, after: AfterGivingUp::OthersWait, error: None };
        if let Phase::Waiting(waiting) = &mut state.phase {
            waiting.callers -= 1;
            given_up.error.clone_from(&waiting.last_error);
            if waiting.callers == 0 {
                // From here on no push and no answer is believed: the answer to the withdrawal decides.
                let last_error = waiting.last_error.take();
                given_up.after = self.leave(state, Leaving { wanted, last_error, ..Leaving::default() });
            }
        }
        given_up
    }

    /// The server was silent for too long, or could not be asked.
    pub(super) fn give_up_asking(&self, state: &mut ClaimState) {
        let Phase::Waiting(waiting) = &mut state.phase else { return };
        let error = waiting.last_error.clone().unwrap_or_else(|| {
            let what = "the request had to wait too long to be sent";
            BackendError::new(BackendErrorKind::Unavailable, what)
        });
        let leaving = waiting.failed(&state.contact, Failure::Backend(error), false);
        self.leave(state, leaving);
    }

    /// The client is drained or shut down. None if the claim does not wait.
    pub(crate) fn fail_for_shutdown(&self) -> Option<AfterGivingUp> {
        debug_assert!(self.config.stop.is_closed(), "a grant after this would be believed");
        let state = &mut *self.lock_state();
        let Phase::Waiting(waiting) = &mut state.phase else { return None };
        let leaving = waiting.failed(&state.contact, Failure::Shutdown, false);
        Some(self.leave(state, leaving))
    }

    fn leave(&self, state: &mut ClaimState, leaving: Leaving) -> AfterGivingUp {
        let next = state.contact.leave(leaving);
        self.enter(state, next);
        if state.contact.may_be_known() { AfterGivingUp::Withdraw } else { AfterGivingUp::Nothing }
    }
}

impl Waiting {
    /// A new wait. The caller that made the claim attends to it: the watchdog must not overtake the first ask.
    pub(super) fn of_maker() -> Waiting {
        Waiting { callers: 1, attended: 1, ..Waiting::default() }
    }

    fn answered(&mut self, mut context: AnswerContext<'_>, answer: Acquired, ask: Ask) -> Then<AfterAnswer> {
        let is_first = context.contact.heard.is_none();
        self.denied_since = None;
        self.hear(&mut context);
        match answer {
            Acquired::Granted { token, lease } => {
                let by = match ask {
                    _ if is_first => GrantedBy::FirstAsk,
                    Ask::UnderWay { woken: true, .. } => GrantedBy::WakeUp,
                    _ => GrantedBy::Polling,
                };
                match self.granted(&mut context, token, lease) {
                    Some(held) => (AfterAnswer::Granted(by), Some(held)),
                    None if valid_until(context.sent, lease) <= context.now => {
                        self.granted_too_late(&context, lease, is_first)
                    }
                    None => (AfterAnswer::Nothing, None),
                }
            }
            Acquired::Queued { rank, recheck_in, ticket, latest } => {
                let former = context.claim.ticket.swap(ticket, Ordering::Relaxed);
                let is_lost = former > 0 && ticket != former;
                self.place.rank = Some(rank);
                self.stands(&mut context, latest);
                match self.keep_waiting(context, recheck_in) {
                    (AfterAnswer::Nothing, None) if is_lost => (AfterAnswer::PlaceLost, None),
                    then => then,
                }
            }
            Acquired::Busy { .. } if context.claim.wait == Wait::No || context.claim.adopts.is_some() => {
                (AfterAnswer::Over, Some(Phase::Over(End::default())))
            }
            Acquired::Busy { recheck_in } => self.keep_waiting(context, recheck_in),
            Acquired::Declined(declined) => {
                let end = End { declined: Some(declined), ..End::default() };
                (AfterAnswer::Over, Some(Phase::Over(end)))
            }
        }
    }

    /// `failures`: how many asks in a row have failed, with this one.
    fn not_answered(
        &mut self,
        context: AnswerContext<'_>,
        error: BackendError,
        failures: u32,
    ) -> Then<AfterAnswer> {
        use BackendErrorKind::{Denied, Refused, Unavailable};
        let AnswerContext { claim, contact, sent, now } = context;
        let is_denied = error.kind() == Denied;
        self.denied_since = is_denied.then(|| self.denied_since.unwrap_or(now));
        let error = if contact.heard.is_some() { error.after_an_answer() } else { error };
        let since = claim.silent_since(contact).min(self.denied_since.unwrap_or(now));
        contact.ask = Ask::Failed(failures);
        self.last_error = Some(error.clone());
        self.ask_now = true; // the reason for this ask has no answer yet
        // The pause of renewals, see `Retries`. A caller that joined this wait looks between two asks whether its time is over.
        let pause = time::pause(failures);
        self.recheck_at = Some((sent + pause).max(now + pause.min(BETWEEN_ASKS)));
        // After an attempt without an answer the request may have a place.
        let is_first = failures == 1 && contact.heard.is_none();
        let hopeless = match error.kind() {
            Refused if is_first => true,
            Unavailable | Refused if claim.wait == Wait::No => failures > 1,
            Unavailable | Refused => now >= since + claim.config.outage_limit,
            _ => true,
        };
        if !hopeless {
            return (AfterAnswer::Nothing, None);
        }
        let left_nothing = is_first && error.kind() != Unavailable;
        let leaving = self.failed(contact, Failure::Backend(error), left_nothing);
        (if contact.sent { AfterAnswer::Withdraw } else { AfterAnswer::Over }, Some(contact.leave(leaving)))
    }

    /// Asks again, but not for ever: the lease may be shorter than a trip.
    fn granted_too_late(
        &mut self,
        context: &AnswerContext<'_>,
        lease: Duration,
        is_first: bool,
    ) -> Then<AfterAnswer> {
        let AnswerContext { claim, ref contact, now, .. } = *context;
        let what = format!("the grant came too late to be used, its lease is {} ms", lease.as_millis());
        let error = BackendError::new(BackendErrorKind::Unavailable, what);
        let since = *self.too_late_since.get_or_insert(now);
        let may_repeat =
            if claim.wait == Wait::No { is_first } else { now < since + claim.config.outage_limit };
        if may_repeat {
            self.last_error = Some(error);
            return (AfterAnswer::Nothing, None);
        }
        let leaving = self.failed(contact, Failure::Backend(error), false);
        (AfterAnswer::Withdraw, Some(contact.leave(leaving)))
    }

    fn keep_waiting(&mut self, mut context: AnswerContext<'_>, recheck_in: Duration) -> Then<AfterAnswer> {
        self.too_late_since = None;
        self.place.renewal.planned = context.contact.heard.map(|heard| next_heartbeat(context.claim, heard));
        self.recheck_in(context.now, recheck_in);
        if let (Some(token), Some(sent)) = (self.pushed.take(), self.place.since) {
            context.sent = sent;
            if let Some(held) = self.granted_by_push(&mut context, token) {
                return (AfterAnswer::Granted(GrantedBy::WakeUp), Some(held));
            }
        }
        (AfterAnswer::Nothing, None)
    }

    /// The answer to a heartbeat.
    pub(super) fn renewed(
        &mut self,
        mut context: AnswerContext<'_>,
        answer: Answer<Renewal>,
    ) -> Then<AfterRenewal> {
        let next = next_heartbeat(context.claim, context.sent);
        match answer {
            Ok(Renewal::Waiting { rank, recheck_in, latest }) => {
                self.hear(&mut context);
                self.stands(&mut context, latest);
                // A plain lock has no queue, and the number is no rank.
                self.place.rank = (context.claim.lock.kind != LockKind::Plain).then_some(rank);
                self.place.renewal = Upkeep::answered(next);
                self.recheck_in(context.now, recheck_in);
                (AfterRenewal::Nothing, None)
            }
            Ok(Renewal::Granted { token, lease }) => {
                self.hear(&mut context);
                self.place.renewal = Upkeep::answered(next); // if it comes too late
                let held = self.granted(&mut context, token, lease);
                (if held.is_some() { AfterRenewal::Granted } else { AfterRenewal::Nothing }, held)
            }
            Ok(Renewal::Lost) => {
                self.place.renewal.planned = None;
                self.ask_now = true;
                let has_ticket = context.claim.ticket() > 0;
                (if has_ticket { AfterRenewal::PlaceGone } else { AfterRenewal::PlaceLost }, None)
            }
            // No answer, or an impossible one.
            Ok(Renewal::Renewed) | Err(_) => {
                self.place.renewal.not_answered(context.now);
                let error = answer.err().map(BackendError::after_an_answer);
                self.last_error = error.or(self.last_error.take());
                (AfterRenewal::Unanswered, None)
            }
        }
    }

    /// A pushed grant lasts for the rest of the place's time. That time counts from the latest command that was answered "in the
    /// queue", since the server's deadline of the place can't be earlier; when the time is over, the server is asked. An answer
    /// "granted" does not count: it prolongs nothing, and if it came too late to be believed, a later push must not be believed
    /// either.
    fn granted_by_push(&mut self, context: &mut AnswerContext<'_>, token: FencingToken) -> Option<Phase> {
        // The push is for an earlier place: that grant is over, and the place was put back with the same ticket. Another client
        // may hold the lock by now.
        if token.get() <= context.contact.latest {
            return None;
        }
        let lease = context.claim.config.place_ttl.min(context.claim.terms.first_lease());
        self.granted(context, token, lease)
    }

    /// The phase `Held` that follows from a grant; none if the grant is not to be believed.
    fn granted(
        &mut self,
        context: &mut AnswerContext<'_>,
        token: FencingToken,
        lease: Duration,
    ) -> Option<Phase> {
        if self.taken.take_if(|taken| *taken == token).is_some() {
            self.ask_now = true;
            return None;
        }
        let held = Held::new(context, token, self.callers, lease);
        if held.is_certain(context.now) {
            return held.may_be(context).then_some(Phase::Held(held));
        }
        // Too late to be believed: the process stood still, or the answer took that long, or the rest of the lease is less
        // than its margin. Ask again, but not before the lease is over at the server, which would only repeat its answer.
        context.contact.latest = context.contact.latest.max(token.get());
        match (context.sent + lease).saturating_duration_since(context.now) {
            Duration::ZERO => self.ask_now = true,
            rest => self.recheck_in(context.now, rest + PAST_THE_END),
        }
        None
    }

    fn hear(&mut self, context: &mut AnswerContext<'_>) {
        context.contact.hear(context.sent);
        self.last_error = None;
        self.place.passed_recheck = self.place.passed_recheck.filter(|at| context.sent < *at); // a later command has rechecked
    }

    fn stands(&mut self, context: &mut AnswerContext<'_>, latest: u64) {
        context.contact.latest = context.contact.latest.max(latest); // answers may come in another order
        self.place.since = self.place.since.max(Some(context.sent));
    }

    fn recheck_in(&mut self, now: Instant, recheck_in: Duration) {
        self.recheck_at = now.checked_add(recheck_in);
    }

    /// Gives every caller this failure. `refused`: the only attempt was refused for the lock's name, or for a foreign key of this
    /// name: the server has nothing of this request.
    pub(super) fn failed(&mut self, contact: &Contact, failure: Failure, refused: bool) -> Leaving {
        let end = End { failure: Some(failure), refused, ..End::default() };
        let (failures, last_error) = (contact.ask.failures(), self.last_error.take());
        Leaving { failures, last_error, end, ..Leaving::default() }
    }

    /// The reason to ask is used up *before* the request is sent: a wake-up that comes while the request is under way may be
    /// about a release that the server saw after it, and must lead to another ask.
    pub(super) fn begin_to_ask(&mut self, contact: &mut Contact) {
        let woken = std::mem::take(&mut self.ask_now);
        contact.ask = Ask::UnderWay { woken, failures: contact.ask.failures() };
        self.recheck_at = None;
    }
}

fn next_heartbeat(claim: &Claim, sent: Instant) -> Planned {
    Planned::gathered(sent, sent + claim.config.place_ttl / 3)
}
