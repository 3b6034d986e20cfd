//! One request's whole life in this client: it asks, it waits, it holds, it is over.
//!
//! A claim is one request of one owner for one lock, under one request number. A new outermost acquisition is
//! always a new claim, so a late answer to an old one can touch nothing but the old one.
//!
//! | phase | meaning | left by |
//! | --- | --- | --- |
//! | `Waiting` | asks, or has a place in the line | an answer or a push: `Held`; the last caller gives up: `Leaving`; a failure: `Leaving` or `Over` |
//! | `Held` | certain until `valid_until` | the last unlock: `Leaving`; a deadline, or the server's word: `Lost` |
//! | `Lost` | was held; some guards have not noticed yet | the last unlock: `Over` |
//! | `Leaving` | a release or a withdrawal is under way | its answer: `Over`; or `Held`, for a timed wait that was granted in that moment |
//! | `Over` | nothing of it is left here | |
//!
//! Each method takes the claim's mutex for a moment; none does I/O or runs user code. The registry's mutex may be
//! held around a claim's, never the other way round.

mod agenda;
mod answers;
mod holds;
mod steps;
mod tasks;
pub(crate) mod terms;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::{Mutex, MutexGuard};

pub(crate) use agenda::{Pauses, earlier};
pub(crate) use answers::{AfterAnswer, AfterRenewal, Punctuality};
pub(crate) use holds::{Grant, Loss, Unlocked};
pub(crate) use steps::{AfterGivingUp, CallerStep, GiveUp, Patience, RoundTimes, Standing, WatchdogStep};
pub(crate) use tasks::{ReleaseStep, TaskStep};
pub(crate) use terms::Terms;

use agenda::Planned;

use crate::backend::{Acquire, BackendError, Hold, LockId, Place, RequestId, Wait};
use crate::config::Config;
use crate::error::LostCause;
use crate::ids::{FencingToken, LockKind, OwnerId};
use crate::losses::FirstLoss;
use crate::snapshot::{HeldLock, WaitingRequest};
use crate::time::{Raise, Signal, TaskSlot};

pub(crate) struct Claim {
    pub(crate) lock: LockId,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    pub(crate) wait: Wait,
    pub(crate) terms: Terms,
    /// How many of the lock's units it takes.
    pub(crate) takes: u32,
    /// When the first attempt was made.
    since: Instant,
    /// The client's.
    pub(crate) config: Arc<Config>,
    /// Raised whenever a thread that sleeps on this claim has to check it again.
    pub(crate) signal: Signal,
    /// Has the waker of the task that waits for it. None if it is a thread's.
    task: Option<Box<TaskSlot>>,
    /// The ticket of the place as last heard, 0 before. It is kept when the place is gone, which is put back by it. It is written
    /// under the state's mutex, and read without it for each request.
    ticket: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Why it came to nothing; every caller gets it.
    failure: Option<Failure>,
    /// The blocked callers and requests that want the hold; at the grant each gets one hold.
    callers: u32,
    /// How many of them wait in a call right now. While there is one, it asks; else the watchdog does.
    attended: u32,
    /// A thread is asking the server now.
    asking: bool,
    /// A thread has asked for the request at least once.
    asked: bool,
    /// An attempt was sent, or may have been: the server may know of the request.
    sent: bool,
    /// The last ask was made without a wake-up.
    polling: bool,
    /// There is a reason to ask now: a wake-up, or an attempt that failed.
    ask_now: bool,
    /// When to ask without a wake-up.
    recheck_at: Option<Instant>,
    /// When to recheck in place of a claim that has left.
    passed_recheck: Option<Instant>,
    /// The server keeps a place, or an interest in wake-ups, that the watchdog has to renew.
    in_line: bool,
    rank: Option<u64>,
    /// The latest number that the server had given out when it last said that this request stands in line, or the token of its
    /// hold. A grant with no greater token belongs to an earlier place.
    latest: u64,
    /// When the last command about this request that was answered was sent.
    heard: Option<Instant>,
    /// When the last command was sent whose answer says that the request stands in line. The place lives from then.
    placed: Option<Instant>,
    /// How many attempts in a row were not answered.
    failures: u32,
    last_error: Option<BackendError>,
    /// Since when each grant came too late to be believed.
    too_late_since: Option<Instant>,
    /// The one attempt was refused for the lock's name, or for what lies under it: the server has nothing of this request.
    refused: bool,
    /// A push that overtook the answer to `acquire`.
    pushed: Option<FencingToken>,
    /// A hold that was taken away before this client heard of its grant.
    taken: Option<FencingToken>,
    /// When the watchdog renews the place or the hold.
    renew: Option<Planned>,
    /// The last renewal was not answered.
    unrenewed: bool,
    /// The watchdog is renewing it now; meanwhile `unlock` does not return.
    renewing: bool,
    /// Until then an attempt that was not answered may still begin something at the server.
    late_until: Option<Instant>,
    /// It was granted, and its task has not taken it yet.
    untaken: bool,
    /// Until when its task waits: for the lock, or for the end of the release.
    task_until: Option<Instant>,
    /// Why the hold was lost that was released last.
    ended_lost: Option<LostCause>,
    decision_senders: Vec<Sender<()>>,
    loss_channels: Vec<FirstLoss>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Waiting,
    Held(Held),
    Lost(Held, LostCause),
    /// `wanted`: a timed wait takes the lock if it turns out to have been granted. `lost`: the hold that is being released
    /// was found to be lost, and that was reported.
    Leaving {
        held: Option<Held>,
        wanted: bool,
        lost: Option<LostCause>,
    },
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    token: FencingToken,
    /// The holds of guards, leaked holds, and those that callers have not taken yet.
    count: u32,
    leaked: u32,
    /// When this client learned of it.
    since: Instant,
    /// Until when it is certain.
    valid_until: Instant,
    /// When the terms end it.
    end: Option<Instant>,
}

/// Why a claim came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Backend(BackendError),
    Shutdown,
}

/// How a grant was learned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantedBy {
    /// The first time it was asked for.
    FirstAsk,
    /// By a wake-up, or by an ask that a wake-up caused.
    WakeUp,
    /// By an ask without a wake-up: its message was lost, or the holder died.
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

/// How a caller that comes to an existing claim stands to it.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The caller waits for it too.
    Waiting,
    /// The caller holds it once more, so often now.
    Held { token: FencingToken, count: u32 },
    /// It is held too often to be counted.
    TooOften,
    /// It is for a lock of another kind.
    OtherKind,
    /// It takes fewer units than the caller wants, and would wait for itself.
    TooFew,
    /// The server is being told of its end, which the next claim has to wait for.
    Leaving,
    /// Its time is over, and that has to be reported before a new claim replaces it.
    Expired,
    /// It is over, or lost: a new claim replaces it.
    Gone,
}

impl Claim {
    pub(crate) fn new(
        lock: LockId,
        owner: OwnerId,
        wait: Wait,
        terms: Terms,
        takes: u32,
        config: &Arc<Config>,
        since: Instant,
    ) -> Claim {
        // By its maker, which the watchdog must not overtake.
        let state = State { callers: 1, attended: 1, ..State::default() };
        Claim {
            lock,
            owner,
            request: RequestId::fresh(),
            wait,
            terms,
            takes,
            since,
            config: Arc::clone(config),
            signal: Signal::new(&config.clock),
            task: None,
            ticket: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// The hold of a request that this client does not know any more: it is to be released.
    pub(crate) fn of_stray_grant(hold: &Hold<'_>, config: &Arc<Config>, now: Instant) -> Claim {
        let Hold { lock, owner, request, token, takes } = *hold;
        let terms = Terms::Renewed(config.lease);
        let claim = Claim::new(lock.clone(), owner.clone(), Wait::No, terms, takes, config, now);
        let held = Held { token, count: 0, leaked: 0, since: now, valid_until: now, end: None };
        let mut state = claim.lock_state();
        (state.phase, state.sent) = (Phase::Leaving { held: Some(held), wanted: false, lost: None }, true);
        drop(state);
        Claim { request, ..claim }
    }

    /// A caller of the same owner comes to this claim. While the claim waits the caller attends to it, until
    /// [`Claim::stop_attending`].
    pub(crate) fn join(&self, kind: LockKind, takes: u32, now: Instant) -> Joined {
        let refused = || match self.lock.kind.agrees_with(kind) {
            false => Some(Joined::OtherKind),
            true => (takes > self.takes).then_some(Joined::TooFew),
        };
        let mut state = self.lock_state();
        match &mut state.phase {
            Phase::Waiting => refused().unwrap_or_else(|| {
                state.callers += 1;
                state.attended += 1;
                Joined::Waiting
            }),
            Phase::Held(held) if now < held.valid_until => {
                refused().unwrap_or_else(|| match held.count.checked_add(1) {
                    Some(count) => {
                        held.count = count;
                        Joined::Held { token: held.token, count }
                    }
                    None => Joined::TooOften,
                })
            }
            Phase::Leaving { .. } => Joined::Leaving,
            Phase::Held(_) => Joined::Expired,
            Phase::Lost(..) | Phase::Over => Joined::Gone,
        }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        let Claim { lock, owner, request, wait, takes, config, .. } = self;
        let (request, wait, takes) = (*request, *wait, *takes);
        Place { lock, owner, request, wait, ttl: config.place_ttl, ticket: self.ticket(), takes }
    }

    pub(crate) fn acquire<'a>(&'a self, label: &'a str) -> Acquire<'a> {
        Acquire { place: self.place(), lease: self.terms.first_lease(), label }
    }

    pub(crate) fn hold(&self, token: FencingToken) -> Hold<'_> {
        Hold { takes: self.takes, ..Hold::new(&self.lock, &self.owner, self.request, token) }
    }

    fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Relaxed)
    }

    pub(crate) fn rank(&self) -> Option<u64> {
        self.lock_state().rank
    }

    /// Sends a message to `sender` when the request is granted or has failed.
    pub(crate) fn tell_when_decided(&self, sender: Sender<()>) {
        let mut state = self.lock_state();
        state.decision_senders.push(sender);
        if !matches!(state.phase, Phase::Waiting) {
            self.decided(&mut state);
        }
    }

    /// Whether a call is under way that can make a place of this request, or restore it.
    pub(crate) fn may_make_a_place(&self) -> bool {
        let state = self.lock_state();
        state.asking || state.renewing
    }

    /// Whether no server knows of it, and none can come to: no attempt was sent, and none is under way.
    pub(crate) fn is_unsent(&self) -> bool {
        !self.lock_state().may_be_known()
    }

    /// Whether nothing can be left of it at the server, also where that refuses to say so.
    pub(crate) fn was_refused(&self) -> bool {
        self.lock_state().refused
    }

    /// Whether it is held, or the server is being told of its end.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Held(_) | Phase::Leaving { .. })
    }

    /// Whether it is useless to tell the server of its end once more, after this error.
    pub(crate) fn needs_no_repeat(&self, error: &BackendError) -> bool {
        self.was_refused() || !error.kind().is_transient()
    }

    /// Whether the claim still waits: a wake-up may be for any waiter of a lock.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.lock_state().phase, Phase::Waiting)
    }

    /// Its entry in the list of what a client holds.
    pub(crate) fn as_held(&self, now: Instant) -> Option<HeldLock> {
        let state = self.lock_state();
        state.certain(now).map(|held| HeldLock {
            lock: self.lock.name.clone(),
            kind: self.lock.kind,
            owner: self.owner.clone(),
            takes: self.takes,
            token: held.token,
            hold_count: held.count,
            leaked: held.leaked,
            held_for: now.saturating_duration_since(held.since),
            valid_for: held.valid_until.saturating_duration_since(now),
        })
    }

    /// Its entry in the list of what a client waits for.
    pub(crate) fn as_waiting(&self, now: Instant) -> Option<WaitingRequest> {
        let state = self.lock_state();
        matches!(state.phase, Phase::Waiting).then(|| WaitingRequest {
            lock: self.lock.name.clone(),
            kind: self.lock.kind,
            owner: self.owner.clone(),
            takes: self.takes,
            rank: state.rank,
            waiting_for: now.saturating_duration_since(self.since),
        })
    }

    /// For how long its callers have waited, or did before they gave up just now.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether it waits, and the server knows of it.
    pub(crate) fn is_in_line(&self) -> bool {
        let state = self.lock_state();
        matches!(state.phase, Phase::Waiting) && state.in_line
    }

    /// Has all that wait for the claim look at it again. Not under a mutex: it may run a waker, which is the program's code.
    pub(crate) fn raise(&self) {
        self.signal.raise();
        if let Some(task) = &self.task {
            task.wake_if_due();
        }
    }

    /// Tells the requests' receivers, and its task with the next raise. A full channel has its message, a closed one has no reader.
    fn decided(&self, state: &mut State) {
        self.task_is_due();
        for sender in state.decision_senders.drain(..) {
            let _ = sender.try_send(());
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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
