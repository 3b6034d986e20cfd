//! The interface of a store: it decides which waiter is next, atomically and by the server's clock. And its error when it can't answer.
//!
//! A backend has no policy: time-outs, retries, waiting, and the verdict that a hold is lost are core's. The interface may
//! change in a minor version: an answer may be added, so answers are `#[non_exhaustive]`; a question that is added has to be answered, so
//! [`Wait`] and [`Renew`] are not. `fairlock-file` is a small backend to read; a new one has to pass the suite of
//! `fairlock-conformance`.

mod doctor;
mod login;
mod messages;

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::iter;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

pub use crate::ids::RequestId;
pub use crate::logging::{LineLimit, in_words, log_safely};
pub use crate::time::pause;
pub use doctor::{Facts, Finding, Table, Verdict, probe, trial, try_out};
pub use login::{Login, Logins, connect_within};
pub use messages::{
    Acquire, Acquired, Condition, Declined, ForceReleased, Hold, Holder, LONGEST_PERIOD, LockId, LockState,
    Place, Released, Renew, Renewal, SHORTEST_PERIOD, Since, Wait, Waiter, Withdrawn, label_with_traceparent,
};

use crate::ids::{ClientId, FencingToken, LockKind, OwnerId};
use crate::time::Clock;

/// The most waiters that one [`inspect`](Backend::inspect) reads: a few milliseconds of a server's time.
pub const MOST_INSPECTED: u64 = 500;

/// A store that keeps locks.
///
/// A method may be called from any thread, many at once. What holds for all of them:
///
/// - **One step.** The store decides atomically and by its own clock. No client's wall clock has a say.
/// - **`Err` means unknown.** The request may have been carried out, so core repeats it. The same request with the same
///   [`RequestId`] takes effect once. Only after an [`unsent`](BackendError::unsent) error core knows that nothing was left behind.
/// - **Bounded.** A call ends within the backend's own response time-out. Retries, waiting and the verdict that a hold is
///   lost are core's.
/// - **Many questions, one call.** [`acquire`](Backend::acquire), [`release`](Backend::release), [`withdraw`](Backend::withdraw) and
///   [`renew`](Backend::renew) give one answer for each question, in the same order. The questions have nothing to do with each other:
///   if one fails, the others still get their answers. The call is bounded as a whole. A store that can't do many in one
///   step or round trip answers [one by one](one_by_one). [`only`] takes the answer to one question.
/// - **A wake-up is a hint** unless it carries a grant, and a grant names its request.
/// - **Nothing stays behind.** What a dead client leaves in the store ends by itself.
///
/// `fairlock-conformance` has these rules and those of each method as tests. What core asks, and a store answers:
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use fairlock_core::backend::*;
/// # use std::sync::mpsc::{Sender, channel};
/// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
/// /// Hears what is granted to the owners of one client.
/// struct Grants(Sender<RequestId>);
///
/// impl WakeSink for Grants {
///     fn wake(&self, wake: Wake<'_>) {
///         if let Wake::Granted { request, .. } = wake {
///             let _ = self.0.send(request);
///         }
///     }
/// }
///
/// let store = fairlock::MemoryBackend::new();
/// let client = ClientId::random();
/// let (sender, grants) = channel();
/// let _subscription = store.subscribe(client, Arc::new(Grants(sender)))?;
///
/// let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
/// let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new(&format!("{client}:1")));
/// let lease = Duration::from_secs(30);
/// let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), lease);
///
/// // The first takes the lock, the second a place. A repeat, after a lost reply, is the same hold.
/// let answers = store.acquire(&[ask(&ann, 1), ask(&bob, 2)]);
/// let [Ok(Acquired::Granted { token, .. }), Ok(Acquired::Queued { rank: 0, .. })] = answers[..] else { panic!() };
/// assert!(matches!(only(store.acquire(&[ask(&ann, 1)]))?, Acquired::Granted { token: same, .. } if same == token));
///
/// // A heartbeat after a re-entry.
/// let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
/// let heartbeat = [Renew::Hold { hold, holds: 2, lease }];
/// assert!(matches!(store.renew(client, &heartbeat)[..], [Ok(Renewal::Renewed)]));
/// let state = store.inspect(&lock, 0..100)?;
/// assert_eq!((state.holder().map(|holder| holder.hold_count), state.queue_length), (Some(2), 1));
///
/// // The release hands the lock on; a repeat touches nothing, and the former hold is lost.
/// assert!(matches!(store.release(&[hold, hold])[..], [Ok(Released::Released), Ok(Released::NotHeld)]));
/// assert_eq!(grants.try_recv(), Ok(RequestId::new(2)));
/// assert!(matches!(store.renew(client, &heartbeat)[..], [Ok(Renewal::Lost)]));
///
/// // A request that was granted is a hold. A request that waits leaves.
/// store.acquire(&[ask(&ann, 3)]);
/// let place = |owner, request| Place::new(&lock, owner, RequestId::new(request));
/// let withdrawn = store.withdraw(&[place(&bob, 2), place(&ann, 3)]);
/// assert!(matches!(withdrawn[..], [Ok(Withdrawn::WasGranted { .. }), Ok(Withdrawn::Left)]));
///
/// // Taken by force.
/// assert_eq!(store.force_release(&lock)?, ForceReleased::Taken);
/// # Ok::<(), fairlock_core::Error>(())
/// ```
pub trait Backend: Send + Sync + 'static {
    /// For each request: takes the lock, or a place in its queue. With [`Wait::No`] it takes the lock or does nothing.
    ///
    /// Called with one request by the thread that wants the lock, again after each wake-up; and with up to 128 by the threads
    /// for tasks, and by the watchdog for requests that no thread waits on.
    ///
    /// - [`Granted`](Acquired::Granted): the holds of all owners together take no more units than the lock has, no earlier waiter
    ///   was passed over, and the store keeps the hold for `lease` from now. The same request again is granted with the same
    ///   token, and its hold ends no earlier for that. A new request gets a greater token than any before of this lock. A hold of
    ///   the same owner under a *different* request blocks it like any other hold: the store can't tell which of the two requests
    ///   is late.
    /// - [`Queued`](Acquired::Queued): the place is in the queue, behind all earlier ones; a repeat keeps it. Asking again after
    ///   `recheck_in` is enough, even if no wake-up ever comes. A request with a [ticket](Place::ticket) of this lock stands at
    ///   this ticket, even if the place was gone. If the place was gone, this call may
    ///   grant nothing: `recheck_in` is zero if the request may be next. Whatever is granted to the place has a greater token
    ///   than `latest`; `latest` is 0 only where [`Wake::Granted`] is never sent.
    /// - [`Busy`](Acquired::Busy): nothing was left behind.
    /// - [`Declined`](Acquired::Declined): the request names a [condition](Acquire::condition) that is not met, and has neither hold nor
    ///   place. Nothing was left behind. If other owners hold the lock, the answer may be `Busy` as well.
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>>;

    /// Gives each hold up, whatever its count, and hands its lock on.
    ///
    /// Called with one hold by the thread that releases. Called with up to 128 holds by a thread for tasks, and by the watchdog:
    /// for guards without an answer to their own attempt, and for grants without a caller.
    ///
    /// The hold is found by its owner, request and token, whatever kind of lock is named. Core may not know the kind, and then says
    /// [`ReadWrite`](crate::LockKind::ReadWrite) if the backend supports that.
    ///
    /// - [`Released`](Released::Released): the hold is gone, and the first in the queue has the lock or was told.
    /// - [`NotHeld`](Released::NotHeld): the store has no hold with this owner, request and token. No other hold was touched. The
    ///   queue may have changed: a place of the hold's own request is removed, since a late repeat of its `acquire` may have made
    ///   one.
    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>>;

    /// Gives the hold to another owner: with the same request and token, a hold count of 1, and this lease from now.
    ///
    /// From then on nothing that names the former owner finds the hold: a renewal, a repeat or a release that arrives late. May be repeated.
    /// An attempt may also arrive late. Then the hold is the adopter's already, or another owner's, or gone; or nobody has adopted the hold, and
    /// the attempt gives the hold away, which then ends with its lease.
    ///
    /// - [`Renewed`](Renewal::Renewed): the hold is `owner`'s, and lasts for `lease` from now.
    /// - [`Lost`](Renewal::Lost): neither the former owner nor `owner` has this hold. Nothing has changed.
    ///
    /// While the store may have forgotten holds, only the owner that has this hold already is answered. For another owner the call fails as
    /// [`Unavailable`](BackendErrorKind::Unavailable): the store may have forgotten an earlier adopter, who believes in the hold still.
    ///
    /// The default gives nothing, and says so.
    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Result<Renewal, BackendError> {
        let _ = (hold, owner, lease);
        Err(BackendError::new(
            BackendErrorKind::InvalidConfig,
            "this backend can't give a hold to another owner",
        ))
    }

    /// Keeps holds and places alive, and hands a lock on that it finds free. Called by the watchdog only.
    ///
    /// All places of one lock are heard before the lock is handed on to the first in the queue, whatever the order of the items.
    ///
    /// - [`Renewed`](Renewal::Renewed): the hold lasts for `lease` from now.
    /// - [`Waiting`](Renewal::Waiting): the place lasts for its `ttl` from now.
    /// - [`Granted`](Renewal::Granted): the place has become a hold.
    /// - [`Lost`](Renewal::Lost): the store is sure that the hold is over, or that the place is gone, or has another
    ///   [ticket](Place::ticket). A place that is gone is not put back: the renewal may arrive after the release of the very hold that
    ///   the place became. After `Lost` a live waiter asks, with its ticket.
    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>>;

    /// Takes each request out of the queue: up to 128. Called when the last caller that wanted it has gone, and once more if an attempt
    /// of it was not answered, see [`attempt_ttl`](Backend::attempt_ttl).
    ///
    /// - [`Left`](Withdrawn::Left): the request is not in the queue, and is granted nothing unless an attempt of it comes later.
    /// - [`WasGranted`](Withdrawn::WasGranted): it holds the lock, and goes on holding it.
    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>>;

    /// Takes the lock from all its holders, whichever they are, and hands it on. The queue stays. The former holders are told by
    /// [`Wake::Taken`].
    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError>;

    /// Takes one hold from its owner, by order of an operator, and hands the lock on. The former holder is told by
    /// [`Wake::Taken`]; the default releases the hold, and the holder hears of it with its next renewal.
    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        only(self.release(&[*hold])).map(ForceReleased::from)
    }

    /// Tells the holders, the length of the queue, how many waiters are absent, and the waiters at the ranks `part`; rank 0 is next.
    /// Ranks beyond the end of the queue are left out.
    ///
    /// The answer is one moment of the store. The work does not grow with the queue: core asks for at most [`MOST_INSPECTED`] waiters
    /// at once, and as many are examined for absent ones. For `0..0` no waiter is: core only wants to know whether the lock is held.
    ///
    /// A waiter of which nothing was heard for its place's time is shown as absent ([`Waiter::is_absent`]), even if no call has
    /// come to the queue since.
    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError>;

    /// Delivers wake-ups for this client to `sink` until the subscription is dropped. Called once, before all other calls.
    ///
    /// Returns when wake-ups arrive, or with the reason why they can't. If listening is expensive, the store may begin with
    /// the client's first request that has to wait, before it answers that request, and end when the client has not waited for a
    /// while. Until then nothing arrives: the client learns with its next renewal what [`Wake::Taken`] would have told. After a
    /// gap the backend says [`Wake::Gap`]. Dropping the subscription ends it and its thread, and does not wait for the thread.
    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError>;

    /// How many connections for commands were replaced after they were lost, for
    /// [`Stats::reconnects`](crate::Stats::reconnects). The connection for wake-ups does not count: it says [`Wake::Gap`].
    /// Asks no server.
    fn reconnects(&self) -> u64 {
        0
    }

    /// Whether the store supports locks of this kind, as it is set up. Core asks for no lock of another kind. The default supports fair and
    /// plain locks: then each place takes one unit, and a backend need not look at `units`. Asks no server.
    ///
    /// - The holds of an exclusive or a read-write lock take at most its [capacity](crate::LockKind::capacity) together. Each request for a
    ///   semaphore names a capacity, and is granted if the units in use and its own fit into that capacity. Each hold has its own end.
    /// - First come, first served by units: a waiter that does not fit yet is not passed by a later one.
    /// - A release, a withdrawal and each call that finds holds over grant all waiters at the head that now fit. A waiter for a semaphore that
    ///   names a greater capacity than the last grant may be granted by its own next heartbeat only.
    /// - A name that is held or waited for as a kind that does not [agree](crate::LockKind::agrees_with) with the request's is a
    ///   [`Mismatch`](BackendErrorKind::Mismatch).
    fn supports(&self, kind: LockKind) -> bool {
        !kind.is_shared()
    }

    /// Why the store does not [`support`](Backend::supports) the other kinds: for the error of a caller.
    fn keeps_only(&self) -> &'static str {
        "the backend has fair and plain locks only"
    }

    /// The clock by which leases end. [`ClientBuilder::build`](crate::ClientBuilder::build) refuses a client with another clock: each
    /// clock would wait for a time that the other never reaches. None, the default, if any clock will do. Asks no server.
    fn store_clock(&self) -> Option<Clock> {
        None
    }

    /// How long a call waits for its answer, at most. [`ClientBuilder::build`](crate::ClientBuilder::build) refuses a lease of less
    /// than twice this. None, the default, if calls do not wait. Asks no server.
    fn response_timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether a call that is made now neither does I/O nor waits. Then a task makes its calls itself: it asks in its poll, and
    /// releases and withdraws in its drop. Else, by default, a thread of the client does that for it. Asked before each such call.
    fn is_non_blocking(&self) -> bool {
        false
    }

    /// For how long after its sending a call may begin something: an [`acquire`](Backend::acquire), the place of a
    /// [`renew`](Backend::renew) that is put back, a [`force_release`](Backend::force_release). A
    /// network may deliver an attempt long after its repeat was answered; the store refuses an older attempt. A request with an
    /// unanswered attempt is [withdrawn](Backend::withdraw) once more after this time, so nothing of the request lasts. None, the
    /// default, if nothing arrives late. Asks no server.
    fn attempt_ttl(&self) -> Option<Duration> {
        None
    }

    /// Whether the lock's places are named by owners alone, as in Redisson's queue. Then the store takes a late attempt of an
    /// earlier request for the owner's next request, so core lets the next request wait. Asks no server.
    fn keeps_place_by_owner(&self, lock: &LockId) -> bool {
        let _ = lock;
        false
    }

    /// The longest lease that the store grants. A client's default lease becomes this if it is longer, and
    /// [`ClientBuilder::build`](crate::ClientBuilder::build) refuses a longer one. None, the default, if there is no limit. Asks no
    /// server.
    fn longest_lease(&self) -> Option<Duration> {
        None
    }

    /// Why the store grants no [longer lease](Backend::longest_lease), and what to do: for the error, after "the longest that the
    /// backend grants". The default says to shorten the lease. Asks no server.
    fn why_no_longer_lease(&self) -> &'static str {
        "shorten the lease"
    }
}

/// What a [`Client`](crate::Client) is made with: a backend, or one that is shared already.
pub trait IntoBackend {
    /// The backend, shared.
    fn into_backend(self) -> Arc<dyn Backend>;
}

impl<B: Backend> IntoBackend for B {
    fn into_backend(self) -> Arc<dyn Backend> {
        Arc::new(self)
    }
}

impl<B: Backend> IntoBackend for Arc<B> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self
    }
}

impl IntoBackend for Arc<dyn Backend> {
    fn into_backend(self) -> Arc<dyn Backend> {
        self
    }
}

/// The answer to a question, or the error.
pub(crate) type Answer<A> = Result<A, BackendError>;

/// The answer to a question that was asked alone.
///
/// ```
/// # use std::time::Duration;
/// # use fairlock_core::{LockKind, LockName, OwnerId};
/// use fairlock_core::backend::{Acquire, Acquired, Backend, LockId, Place, RequestId, only};
///
/// # let store = fairlock::MemoryBackend::new();
/// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
/// # let owner = OwnerId::new("ann:1");
/// let place = Place::new(&lock, &owner, RequestId::new(1));
/// let answer = only(store.acquire(&[Acquire::new(place, Duration::from_secs(30))]))?;
/// assert!(matches!(answer, Acquired::Granted { .. }));
/// # Ok::<(), fairlock_core::Error>(())
/// ```
///
/// # Errors
/// The error of the answer; `Unavailable` without an answer.
pub fn only<A>(answers: Vec<Result<A, BackendError>>) -> Result<A, BackendError> {
    answers.into_iter().next().unwrap_or_else(missing)
}

/// Answers one question after the other, for a store that has no step for several. After an answer that is
/// [`Unavailable`](BackendErrorKind::Unavailable) it asks no more, since each call might wait as long: the rest get the same answer.
pub fn one_by_one<Q, A>(
    questions: &[Q],
    ask: impl Fn(&Q) -> Result<A, BackendError>,
) -> Vec<Result<A, BackendError>> {
    let mut unanswered = None;
    let answer = |question| {
        let answer = unanswered.clone().map_or_else(|| ask(question), Err);
        unanswered =
            answer.as_ref().err().filter(|error| error.kind() == BackendErrorKind::Unavailable).cloned();
        answer
    };
    questions.iter().map(answer).collect()
}

/// The answers, and then errors without end: one for each question that the backend has left out.
pub(crate) fn or_missing<A>(answers: Vec<Answer<A>>) -> impl Iterator<Item = Answer<A>> {
    answers.into_iter().chain(iter::repeat_with(missing))
}

fn missing<A>() -> Answer<A> {
    Err(BackendError::new(BackendErrorKind::Unavailable, "no answer for this item"))
}

/// A wake-up. All are hints but `Granted`, which counts only for the request that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake<'a> {
    /// The releaser made this waiter the holder.
    Granted {
        /// The name of the lock.
        lock: &'a str,
        /// The new holder.
        owner: &'a str,
        /// Its request.
        request: RequestId,
        /// Its fencing token.
        token: FencingToken,
    },
    /// The lock may be free: ask again.
    Recheck {
        /// The name of the lock.
        lock: &'a str,
        /// The owner that has to ask; none for any one waiter.
        owner: Option<&'a str>,
    },
    /// The hold with this token was taken away.
    Taken {
        /// The name of the lock.
        lock: &'a str,
        /// The former holder.
        owner: &'a str,
        /// The token of the hold.
        token: FencingToken,
    },
    /// Messages may have been missed: everything has to be renewed.
    Gap,
}

/// Where a backend delivers wake-ups.
pub trait WakeSink: Send + Sync {
    /// Takes a wake-up, from any thread, without blocking. Call it while you hold no mutex of your own.
    fn wake(&self, wake: Wake<'_>);
}

/// A subscription of a client. Its drop ends it, without waiting.
#[derive(Debug)]
pub struct Subscription(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Any + Send + Sync>);

impl Subscription {
    /// A subscription that ends when `keep` is dropped.
    pub fn new(keep: impl Any + Send + Sync) -> Subscription {
        Subscription(Box::new(keep))
    }
}

/// What a caller can do about a [`BackendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// No answer, or none that can be used (busy, full, read-only, malformed): ask again. Whether the request was carried out is
    /// not known.
    Unavailable,
    /// The store answered that it takes no writes for now: it is full, or can't save its data. Nothing was begun. A new request
    /// fails at once, since such a state rarely passes in seconds. A waiter goes on as after `Unavailable`, to keep its place.
    Refused,
    /// A wrong password or user, or a missing right: asking again does not help.
    Denied,
    /// The store has something else under the lock's name.
    Corrupt,
    /// The name is in use for a lock of another kind. The message says both.
    Mismatch,
    /// The backend keeps no such locks; or a newer version of fairlock keeps the lock, in a layout that this version does not know
    /// (see [`BackendError::newer_layout`]). Nothing was changed.
    Unsupported,
    /// This store can't keep a lock of that name.
    InvalidName,
    /// An address or a setting that can't work.
    InvalidConfig,
}

impl BackendErrorKind {
    /// Whether the same question may be answered later although nobody changes anything.
    pub(crate) fn is_transient(self) -> bool {
        matches!(self, BackendErrorKind::Unavailable | BackendErrorKind::Refused)
    }
}

/// The error of a backend that could not answer. The message names the server and holds no secret.
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    setting: Option<&'static str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    is_unsent: bool,
}

impl BackendError {
    /// An error of this kind; `message` must hold no password.
    pub fn new(kind: BackendErrorKind, message: impl Into<Text>) -> Self {
        let message: Text = message.into();
        BackendError {
            kind,
            message: Arc::from(&*message),
            setting: message.setting(),
            source: None,
            is_unsent: false,
        }
    }

    /// The error for a name that is in use with `found` units, and was asked for as another kind.
    pub fn mismatch(found: u32, asked: LockKind) -> Self {
        let of_units = |units| match units {
            1 => "an exclusive lock".to_owned(),
            u32::MAX => "a read-write lock".to_owned(),
            permits => format!("a semaphore of {permits} permits"),
        };
        let (is, message) = (
            of_units(found),
            match asked {
                LockKind::Semaphore { permits: 1 } => {
                    "you asked for a semaphore of 1 permit: use another name".to_owned()
                }
                kind => format!("you asked for {}: use another name", of_units(kind.capacity())),
            },
        );
        BackendError::new(BackendErrorKind::Mismatch, format!("it is {is}, and {message}"))
    }

    /// The error for something that is stored in layout `found` of a later version, where this version knows the layouts up to `known`.
    /// Nothing was changed.
    pub fn newer_layout(found: impl fmt::Display, known: impl fmt::Display) -> Self {
        let message = format!(
            "it has layout {found}, and this version of fairlock knows layouts up to {known}: use a newer fairlock here"
        );
        BackendError::new(BackendErrorKind::Unsupported, message)
    }

    /// Names the setting that the message is about, if it is some: a method of the builder of this backend. The message itself does not name
    /// the setting.
    ///
    /// ```
    /// # use fairlock_core::backend::{BackendError, BackendErrorKind};
    /// let error = BackendError::new(BackendErrorKind::Unavailable, "no answer within 1s").about_setting("connect_timeout");
    /// assert_eq!(error.to_string(), "no answer within 1s (connect_timeout)");
    /// ```
    #[must_use]
    pub fn about_setting(mut self, setting: impl Into<Option<&'static str>>) -> Self {
        self.setting = setting.into();
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(error.into()));
        self
    }

    /// Says that the request was never sent: no server has it or will ever get it, by any attempt of this call. Then core has nothing
    /// to withdraw. In doubt, leave it out.
    ///
    /// ```
    /// # use fairlock_core::backend::{BackendError, BackendErrorKind};
    /// let error = BackendError::new(BackendErrorKind::Unavailable, "connection refused").unsent();
    /// assert!(error.is_unsent());
    /// ```
    #[must_use]
    pub fn unsent(self) -> Self {
        BackendError { is_unsent: true, ..self }
    }

    /// Takes [`unsent`](BackendError::unsent) back: an earlier part of the same call was sent.
    #[must_use]
    pub fn maybe_sent(self) -> Self {
        BackendError { is_unsent: false, ..self }
    }

    /// Whether the request was never sent.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// The error for a request that the store has answered before: a right that is denied may come back, as while rights are changed.
    pub(crate) fn after_an_answer(self) -> Self {
        match self.kind {
            BackendErrorKind::Denied => BackendError { kind: BackendErrorKind::Unavailable, ..self },
            _ => self,
        }
    }

    /// The error for an answer that does not fit its question.
    pub(crate) fn senseless() -> Self {
        BackendError::new(BackendErrorKind::Unavailable, "the answer makes no sense")
    }

    /// What a caller can do about this error.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// The setting that the message is about.
    pub fn setting(&self) -> Option<&'static str> {
        self.setting
    }

    /// The message, without the setting.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.message, self.setting)
    }
}

impl StdError for BackendError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Words, and the setting of a builder that they are about: `no answer within 1s (connect_timeout)`. The words don't name the setting, so
/// that a program with other names for its settings can say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    words: String,
    setting: Option<&'static str>,
}

impl Text {
    /// The text with this setting, if it is some: the name of the builder's method.
    #[must_use]
    pub fn about_setting(self, setting: impl Into<Option<&'static str>>) -> Text {
        Text { setting: setting.into().or(self.setting), ..self }
    }

    /// Other words, about the same setting.
    #[must_use]
    pub fn reworded(self, words: impl FnOnce(&str) -> String) -> Text {
        Text { words: words(&self.words), ..self }
    }

    /// The setting.
    pub fn setting(&self) -> Option<&'static str> {
        self.setting
    }
}

/// The words.
impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

/// The words, and the setting in parentheses.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(f, &self.words, self.setting)
    }
}

impl From<String> for Text {
    fn from(words: String) -> Text {
        Text { words, setting: None }
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Text {
        words.to_owned().into()
    }
}

/// What a backend said, with the setting.
impl From<&BackendError> for Text {
    fn from(error: &BackendError) -> Text {
        Text::from(error.message()).about_setting(error.setting())
    }
}

/// The words, and behind them the setting.
pub(crate) fn write_text(
    f: &mut fmt::Formatter<'_>,
    words: &str,
    setting: Option<&'static str>,
) -> fmt::Result {
    f.write_str(words)?;
    setting.map_or(Ok(()), |setting| write!(f, " ({setting})"))
}
