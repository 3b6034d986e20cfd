//! One request's whole life in this client: it asks, it waits, it holds, it is over.
//!
//! A claim is one request of an owner for a lock, under one request number. A new outermost acquisition is always a new claim, so
//! a late answer touches only the old claim.
//!
//! Each phase has a file, and its struct has all that belongs to this phase alone.
//!
//! | phase | meaning | left by |
//! | --- | --- | --- |
//! | `waiting.rs`: `Waiting` | asks, or has a place in the queue | an answer, a heartbeat or a push that grants: `Held`; the last caller or the task gives up, an ask fails for good, a stop: `Leaving`, or `Over` if no server can know of the request |
//! | `held.rs`: `Held` | certain until `valid_until` | the last unlock: `Leaving`; a deadline, or the server's word: `Lost` |
//! | `held.rs`: `Lost` | was held; some guards have not noticed yet | the last unlock: `Leaving`, so that the server is told for good measure; a shutdown: `Over` |
//! | `leaving.rs`: `Leaving` | a release or a withdrawal is under way | its answer: `Over`; or `Held`, for a timed wait that was granted in that moment |
//! | `leaving.rs`: `Over` | nothing of the request is left in this client | |
//!
//! What crosses a change of phase:
//!
//! | under way | the phase meanwhile | then |
//! | --- | --- | --- |
//! | an ask | `Held` by a push or a heartbeat | the answer changes nothing; a release waits for it |
//! | an ask | `Leaving` or `Over` | the answer is late; a withdrawal waits for it, and is repeated if it had none (`ledger.rs`) |
//! | a renewal | any later phase | the answer changes nothing: a belief that has ended never revives |
//! | a push | `Leaving` | not believed: the answer to the withdrawal decides |
//! | a withdrawal | `Leaving`, whose caller waits no longer | a grant that the withdrawal finds is released |
//!
//! Each method takes the claim's mutex for a moment; none does I/O, and only `shown.rs` runs user code. The registry's mutex may be
//! held around a claim's, never the other way round.

mod agenda;
mod held;
mod leaving;
mod shown;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

pub use shown::{HeldLock, WaitingRequest};

pub(crate) use agenda::{
    CallerStep, Patience, Pauses, ReleaseStep, RoundTimes, Standing, TaskStep, WatchdogStep, earlier,
};
pub(crate) use held::{Grant, Loss, Punctuality, Terms, Unlocked};
pub(crate) use leaving::Failure;
pub(crate) use waiting::{AfterAnswer, AfterGivingUp, GiveUp, GrantedBy};

use held::Held;
use leaving::{End, Leaving};
#[cfg(feature = "tracing")]
use shown::Spans;
use waiting::Waiting;

use crate::backend::{
    Acquire, Answer, BackendError, BackendErrorKind, Condition, Hold, LockId, Place, Renewal, RequestId, Wait,
};
use crate::config::Config;
use crate::error::{LostCause, SlowWait};
use crate::ids::{FencingToken, LockKind, OwnerId};
use crate::time::{Raise, Signal, TaskSlot};

pub(crate) struct Claim {
    pub(crate) lock: LockId,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    pub(crate) wait: Wait,
    pub(crate) terms: Terms,
    /// How many of the lock's units the request takes.
    pub(crate) units: u32,
    /// When the request is declined.
    condition: Condition,
    /// The claim goes on with a hold of this other owner. Its asks are attempts to adopt that hold.
    adopts: Option<Box<(OwnerId, FencingToken)>>,
    /// When the first attempt was made.
    since: Instant,
    /// The settings of the client.
    pub(crate) config: Arc<Config>,
    /// Raised whenever a thread that sleeps on this claim has to check it again.
    pub(crate) signal: Signal,
    /// The waker of the task that waits for this claim; none if a thread waits.
    task: Option<Box<TaskSlot>>,
    /// The ticket of the place by the last answer; 0 before the first. Kept when the place is gone: by its ticket the server puts
    /// the place back. Written under the mutex of `state`, and read for each request without that mutex.
    ticket: AtomicU64,
    /// The wait was slow, and a line in the log has said why.
    explained: AtomicBool,
    /// What was seen when the slow wait was explained.
    seen: OnceLock<Arc<SlowWait>>,
    #[cfg(feature = "tracing")]
    spans: Spans,
    state: Mutex<ClaimState>,
}

struct ClaimState {
    phase: Phase,
    contact: Contact,
    /// When this waiter would have rechecked. After it has left, another waiter of this client rechecks then.
    recheck: Option<Instant>,
}

enum Phase {
    Waiting(Waiting),
    Held(Held),
    Lost(Held, LostCause),
    Leaving(Leaving),
    Over(End),
}

/// What the client has sent to the server about the request, and what the server has answered. It belongs to no phase: a call that is
/// under way may outlast any phase, and an unanswered attempt may still begin something.
#[derive(Default)]
struct Contact {
    ask: Ask,
    /// The watchdog is renewing the place or the hold now; meanwhile `unlock` does not return.
    renewing: bool,
    /// An attempt was sent, or may have been: the server may know of the request.
    sent: bool,
    /// When the latest answered command about this request was sent.
    heard: Option<Instant>,
    /// The server's latest number at its last answer "in the queue", or the token of the hold. A grant with no greater token
    /// belongs to an earlier place.
    latest: u64,
    /// Until when an unanswered attempt may still begin something at the server.
    late_until: Option<Instant>,
}

/// How asking for the request stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ask {
    #[default]
    Never,
    /// A thread is asking the server now, after so many failures. `woken`: a wake-up is the reason, or an attempt that failed.
    UnderWay { woken: bool, failures: u32 },
    /// The last ask was answered, or its answer changes nothing any more.
    Answered,
    /// So many asks in a row were not answered.
    Failed(u32),
}

/// What a phase needs to handle an answer or a push. `sent`: when the answered request was sent; a lease counts from then.
struct AnswerContext<'a> {
    claim: &'a Claim,
    contact: &'a mut Contact,
    sent: Instant,
    now: Instant,
}

/// What follows from an answer or a push, and the next phase if the phase changes.
type Then<T> = (T, Option<Phase>);

/// What follows from an answer to `renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRenewal {
    Nothing,
    /// The renewal is to be repeated.
    Unanswered,
    /// The hold is prolonged.
    Renewed(Punctuality),
    /// The place has become a hold, and the client learns of the grant by this answer.
    Granted,
    /// The place is gone. The request asks again, and the answer says whether the place was put back.
    PlaceGone,
    /// The place is gone and has no ticket: the request goes to the tail.
    PlaceLost,
    /// The hold is over.
    HoldLost,
}

/// How a caller that comes to an existing claim stands to it.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The caller waits for it too.
    Waiting,
    /// The caller holds it once more, so often now.
    Held { token: FencingToken },
    /// The hold count is at its maximum.
    TooOften,
    /// The claim is for a lock of another kind.
    OtherKind,
    /// The claim waits by another number of permits: the number that its first caller named.
    OtherNumber,
    /// The claim takes fewer units than the caller wants: the caller would wait for its own hold.
    TooFew,
    /// The server is being told of the claim's end; the next claim has to wait for that.
    Leaving,
    /// The hold has expired; the loss has to be reported before a new claim replaces this one.
    Expired,
    /// The claim is over, or its hold is lost: a new claim replaces it.
    Gone,
}

impl Claim {
    pub(crate) fn new(
        lock: LockId,
        owner: OwnerId,
        wait: Wait,
        terms: Terms,
        units: u32,
        config: &Arc<Config>,
        since: Instant,
    ) -> Claim {
        debug_assert!((1..=lock.kind.capacity()).contains(&units), "{units} units of {lock:?} never fit");
        let phase = Phase::Waiting(Waiting::of_maker());
        let state = ClaimState { phase, contact: Contact::default(), recheck: None };
        Claim {
            lock,
            owner,
            request: RequestId::fresh(),
            wait,
            terms,
            units,
            condition: Condition::default(),
            adopts: None,
            since,
            config: Arc::clone(config),
            signal: Signal::new(&config.clock),
            task: None,
            ticket: AtomicU64::new(0),
            explained: AtomicBool::new(false),
            seen: OnceLock::new(),
            #[cfg(feature = "tracing")]
            spans: Spans::default(),
            state: Mutex::new(state),
        }
    }

    /// A claim that adopts this hold, with the hold's request, for another owner.
    pub(crate) fn adopting(
        hold: &Hold<'_>,
        owner: OwnerId,
        terms: Terms,
        config: &Arc<Config>,
        now: Instant,
    ) -> Claim {
        let Hold { lock, owner: former, request, token, units } = *hold;
        let adopts = Some(Box::new((former.clone(), token)));
        let claim = Claim::new(lock.clone(), owner, Wait::Forever, terms, units, config, now);
        Claim { request, adopts, ..claim }
    }

    /// The claim of a request that names this condition.
    pub(crate) fn on(self, condition: Condition) -> Claim {
        Claim { condition, ..self }
    }

    /// A caller of the same owner comes to this claim. While the claim waits the caller attends to it, until
    /// [`Claim::stop_attending`].
    pub(crate) fn join(&self, kind: LockKind, units: u32, now: Instant) -> Joined {
        let refused = || match self.lock.kind.agrees_with(kind) {
            false => Some(Joined::OtherKind),
            true => (units > self.units).then_some(Joined::TooFew),
        };
        match &mut self.lock_state().phase {
            Phase::Waiting(waiting) => refused().unwrap_or_else(|| {
                if self.lock.kind.capacity() != kind.capacity() {
                    return Joined::OtherNumber;
                }
                waiting.callers += 1;
                waiting.attended += 1;
                Joined::Waiting
            }),
            Phase::Held(held) if held.is_certain(now) => {
                refused().unwrap_or_else(|| match held.count.checked_add(1) {
                    Some(count) => {
                        held.count = count;
                        Joined::Held { token: held.token }
                    }
                    None => Joined::TooOften,
                })
            }
            Phase::Leaving(_) => Joined::Leaving,
            Phase::Held(_) => Joined::Expired,
            Phase::Lost(..) | Phase::Over(_) => Joined::Gone,
        }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        let Claim { lock, owner, request, wait, units, config, .. } = self;
        let (request, wait, units) = (*request, *wait, *units);
        Place { lock, owner, request, wait, ttl: config.place_ttl, ticket: self.ticket(), units }
    }

    pub(crate) fn acquire(&self) -> Acquire<'_> {
        let (place, lease, label) = (self.place(), self.terms.first_lease(), self.sent_label());
        Acquire { place, lease, label, condition: self.condition }
    }

    /// The hold that it adopts.
    pub(crate) fn adopts(&self) -> Option<Hold<'_>> {
        let (owner, token) = &**self.adopts.as_ref()?;
        Some(Hold { owner, ..self.hold(*token) })
    }

    pub(crate) fn hold(&self, token: FencingToken) -> Hold<'_> {
        Hold { units: self.units, ..Hold::new(&self.lock, &self.owner, self.request, token) }
    }

    fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    /// Takes the answer to a renewal of a place or a hold that was sent at `sent`.
    pub(crate) fn renewed(
        &self,
        answer: Answer<Renewal>,
        sent: Instant,
        asked_lease: Duration,
        now: Instant,
    ) -> AfterRenewal {
        let state = &mut *self.lock_state();
        let context = AnswerContext { claim: self, contact: &mut state.contact, sent, now };
        match &mut state.phase {
            Phase::Waiting(waiting) => {
                let then = waiting.renewed(context, answer);
                self.follow(state, then)
            }
            Phase::Held(held) => held.renewed(context, answer, asked_lease),
            Phase::Lost(..) | Phase::Leaving(_) | Phase::Over(_) => AfterRenewal::Nothing,
        }
    }

    /// After a gap in the wake-ups: the place or the hold is to be renewed at once.
    pub(crate) fn renew_at_once(&self, now: Instant) {
        match &mut self.lock_state().phase {
            Phase::Waiting(waiting) => waiting.place.renewal.hurry(now),
            Phase::Held(held) => held.renewal.hurry(now),
            Phase::Lost(..) | Phase::Leaving(_) | Phase::Over(_) => {}
        }
    }

    /// Whether the claim is held, or the server is being told of its end.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Held(_) | Phase::Leaving(_))
    }

    /// Whether its owner's next call may make a new claim. A thread that finds the hold lost makes one, even if the last guard of
    /// the hold is dropped in that moment.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.lock_state().phase {
            Phase::Lost(..) | Phase::Over(_) => true,
            Phase::Leaving(leaving) => leaving.end.lost.is_some(),
            Phase::Waiting(_) | Phase::Held(_) => false,
        }
    }

    /// Whether the claim still waits: a wake-up may be for any waiter of a lock.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Waiting(_))
    }

    /// Has all threads and the task that wait for the claim look at it again. To be called without a mutex: a waker, which is the
    /// program's code, may run.
    pub(crate) fn raise(&self) {
        self.signal.raise();
        if let Some(task) = &self.task {
            task.wake_if_due();
        }
    }

    fn follow<T>(&self, state: &mut ClaimState, (after, next): Then<T>) -> T {
        next.map(|next| self.enter(state, next));
        after
    }

    /// The only way to another phase. The end of a wait is told to the requests' receivers here, and to the task with the next
    /// raise. Returns the former phase.
    fn enter(&self, state: &mut ClaimState, next: Phase) -> Phase {
        debug_assert!(state.phase.may_become(&next), "a belief that has ended revives: {:?}", self.request);
        let former = std::mem::replace(&mut state.phase, next);
        if let Phase::Waiting(waiting) = &former {
            state.recheck = earlier(waiting.recheck_at, waiting.place.passed_recheck);
            self.task_is_due();
            for sender in &waiting.decision_senders {
                let _ = sender.try_send(()); // a full channel has its message, a closed one has no reader
            }
        }
        former
    }

    fn lock_state(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock()
    }

    /// The watchdog asks for the request that [`watchdog_step`](Self::watchdog_step) named, unless a caller does by now.
    pub(crate) fn begin_to_ask(&self) -> bool {
        let state = &mut *self.lock_state();
        match &mut state.phase {
            Phase::Waiting(waiting) if !state.contact.ask.is_under_way() => {
                waiting.begin_to_ask(&mut state.contact);
                true
            }
            _ => false,
        }
    }

    /// The renewal of [`Claim::watchdog_step`] was answered, or was not sent.
    pub(crate) fn renewal_done(&self) {
        self.lock_state().contact.renewing = false;
        self.raise();
    }

    pub(crate) fn is_renewing(&self) -> bool {
        self.lock_state().contact.renewing
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.lock_state().contact.ask.is_under_way()
    }

    /// Whether a call is under way that can make a place of this request, or restore it.
    pub(crate) fn may_make_a_place(&self) -> bool {
        let state = self.lock_state();
        state.contact.ask.is_under_way() || state.contact.renewing
    }

    /// Whether no server knows of the request or will: no attempt was sent, and none is under way.
    pub(crate) fn is_unsent(&self) -> bool {
        !self.lock_state().contact.may_be_known()
    }

    /// Whether the server has ever answered for this request.
    pub(crate) fn was_heard(&self) -> bool {
        self.lock_state().contact.heard.is_some()
    }

    /// Whether the last attempt to ask was not answered.
    pub(crate) fn last_ask_failed(&self) -> bool {
        self.lock_state().contact.ask.failures() > 0
    }

    /// Since when the server has not answered about this request.
    fn silent_since(&self, contact: &Contact) -> Instant {
        contact.heard.unwrap_or(self.since)
    }

    /// An error if the server has been silent about this request for so long that a heartbeat was not answered.
    pub(crate) fn silence(&self, now: Instant) -> Option<BackendError> {
        self.silence_of(&self.lock_state().contact, now)
    }

    fn silence_of(&self, contact: &Contact, now: Instant) -> Option<BackendError> {
        let silent = now.saturating_duration_since(self.silent_since(contact));
        let was_asked = contact.ask != Ask::Never && self.wait != Wait::No;
        (was_asked && silent >= self.config.place_ttl * 2 / 3).then(|| {
            let what = format!("no word of this request for {} ms", silent.as_millis());
            BackendError::new(BackendErrorKind::Unavailable, what)
        })
    }
}

impl Phase {
    /// The table at the head of this file. Any phase may go to `Over` at once: by a shutdown, or if the server need not be told.
    fn may_become(&self, next: &Phase) -> bool {
        match (self, next) {
            (_, Phase::Over(_)) | (Phase::Held(_), Phase::Lost(..)) => true,
            (Phase::Leaving(leaving), Phase::Held(_)) => leaving.wanted,
            (Phase::Waiting(_), Phase::Held(_)) => true,
            (Phase::Waiting(_) | Phase::Held(_) | Phase::Lost(..), Phase::Leaving(_)) => true,
            _ => false,
        }
    }
}

impl ClaimState {
    /// The hold, if it is certain.
    fn certain(&self, now: Instant) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) if held.is_certain(now) => Some(held),
            _ => None,
        }
    }

    /// The hold, even if it is lost or being released.
    fn held(&self) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) | Phase::Lost(held, _) => Some(held),
            Phase::Leaving(leaving) => leaving.held.as_ref(),
            Phase::Waiting(_) | Phase::Over(_) => None,
        }
    }
}

impl Contact {
    /// Whether the server may know of the request: an attempt was sent, or is under way.
    fn may_be_known(&self) -> bool {
        self.sent || self.ask.is_under_way()
    }

    /// No thread is asking any more.
    fn end_ask(&mut self) {
        if self.ask.is_under_way() {
            self.ask = Ask::Answered;
        }
    }

    /// An answer to a command about a request that waits.
    fn hear(&mut self, sent: Instant) {
        self.heard = self.heard.max(Some(sent));
        match &mut self.ask {
            Ask::UnderWay { failures, .. } => *failures = 0,
            ask @ Ask::Failed(_) => *ask = Ask::Answered,
            Ask::Never | Ask::Answered => {}
        }
    }

    /// The request ends, and the server has to be told if it may know of it.
    fn leave(&self, leaving: Leaving) -> Phase {
        if self.may_be_known() { Phase::Leaving(leaving) } else { Phase::Over(leaving.end) }
    }
}

impl Ask {
    fn is_under_way(self) -> bool {
        matches!(self, Ask::UnderWay { .. })
    }

    fn failures(self) -> u32 {
        match self {
            Ask::Never | Ask::Answered => 0,
            Ask::UnderWay { failures, .. } | Ask::Failed(failures) => failures,
        }
    }
}

impl RefUnwindSafe for Claim {} // see `Shared`

impl Raise for Claim {
    /// The program has cancelled the wait.
    fn raise(&self) {
        self.task_is_due();
        Claim::raise(self);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("lock", &self.lock.name)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
