//! The interface of a store: it decides which waiter is next, atomically and by the server's clock.
//!
//! A backend has no policy: time-outs, retries, waiting, and the verdict that a hold is lost are core's. The interface may
//! change until 1.0. `docs/file-backend` is a small backend to read; a new one has to pass the suite of
//! `fairlock-conformance`.

mod connecting;
mod doctor;
mod error;
mod messages;
mod shown;
mod wake;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use connecting::connect_within;
pub use doctor::{Finding, Verdict, probe, try_out};
pub(crate) use error::{Answer, or_missing};
pub use error::{BackendError, BackendErrorKind};
pub use messages::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, HoldKept, Holder, LockId, LockState, Place,
    Released, Renew, Renewal, Wait, Waiter, Withdrawn,
};
pub use wake::{Subscription, Wake, WakeSink};

pub use crate::backoff::pause;
pub use crate::ids::RequestId;
use crate::ids::{ClientId, LockKind};
pub use crate::logging::{LineLimit, log_safely};
use crate::time::Clock;
pub use crate::words::in_words;

/// The most waiters that one [`inspect`](Backend::inspect) reads: a few milliseconds of a server's time.
pub const MOST_INSPECTED: u64 = 500;

/// A store that keeps locks.
///
/// Each method is one question to the store. It may be called from any thread, many at once. What holds for all of them:
///
/// - **One step.** The store decides atomically and by its own clock. No client's wall clock has a say.
/// - **`Err` means unknown.** The request may have been carried out, so core repeats it. The same request with the same
///   [`RequestId`] takes effect once. Only of an error that is [`unsent`](BackendError::unsent) core knows that it has left nothing.
/// - **Bounded.** A call ends within the backend's own response time-out. Retries, waiting and the verdict that a hold is
///   lost are core's.
/// - **A wake-up is a hint** unless it carries a grant, and a grant names its request.
/// - **Nothing stays behind.** What a dead client leaves in the store ends by itself.
///
/// `fairlock-conformance` has these rules and those of each method as tests.
pub trait Backend: Send + Sync + 'static {
    /// Takes the lock, or a place in its line. With [`Wait::No`] it takes the lock or does nothing.
    ///
    /// Called by the thread that wants the lock, again after each wake-up, and by the watchdog for a request that no thread
    /// waits on.
    ///
    /// - [`Granted`](Acquired::Granted): the holds of all owners together take no more units than the lock has, no earlier waiter
    ///   was passed over, and the store keeps the hold for `lease` from now. The same request again is granted with the same token,
    ///   and its hold ends no earlier for that. A new request gets a greater token than any that this lock has had; a hold of its own
    ///   owner under another request is in its way like that of any other, since either of the two may be late.
    /// - [`Queued`](Acquired::Queued): the place is in the line, behind all earlier ones; a repeat keeps it. Asking again after
    ///   `recheck_in` is enough, even if no wake-up ever comes. A request that names a [ticket](Place::ticket) that the lock
    ///   has given out stands at that ticket, also if its place was gone, but not after a [`kick`](Backend::kick). One whose place
    ///   was gone may be granted nothing by this call: then `recheck_in` is zero if it may be next. Whatever is
    ///   granted to the place has a greater token than `latest`; `latest` is 0 only where [`Wake::Granted`] is never sent.
    /// - [`Busy`](Acquired::Busy): nothing was left behind.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!("it is free") };
    /// // A repeat, after a lost reply, is the same hold.
    /// assert!(matches!(store.acquire(&ask(&ann, 1))?, Acquired::Granted { token: same, .. } if same == token));
    /// assert!(matches!(store.acquire(&ask(&bob, 2))?, Acquired::Queued { rank: 0, .. }));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError>;

    /// Asks for many requests, each as [`acquire`](Backend::acquire) does. Called by the watchdog, for requests that no thread
    /// waits on, such as those whose places the store has lost, and by the thread for tasks: 64 at most.
    ///
    /// The answers are as those of [`withdraw_all`](Backend::withdraw_all), and so is the default.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// let answers = store.acquire_all(&[ask(&ann, 1), ask(&bob, 2)]);
    /// assert!(matches!(answers[..], [Ok(Acquired::Granted { .. }), Ok(Acquired::Queued { rank: 0, .. })]));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn acquire_all(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        one_by_one(asks, |ask| self.acquire(ask))
    }

    /// Sets the hold count. Called at each re-entry and each inner unlock, with the count as it is then.
    ///
    /// - [`Set`](HoldCountSet::Set): the store knows the count, or will hear it with the next renewal.
    /// - [`Lost`](HoldCountSet::Lost): the hold is over.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// assert_eq!(store.set_hold_count(&hold, 2)?, HoldCountSet::Set);
    /// assert_eq!(store.inspect(&lock, 0..0)?.holder().map(|holder| holder.hold_count), Some(2));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError>;

    /// Gives the hold up, whatever its count, and hands the lock on.
    ///
    /// The hold is found by its owner, request and token, whatever kind of lock is named. Core may not know the kind, and then says
    /// [`ReadWrite`](crate::LockKind::ReadWrite) if the backend keeps that.
    ///
    /// - [`Released`](Released::Released): the hold is gone, and the first in line has the lock or was told.
    /// - [`NotHeld`](Released::NotHeld): the store has no hold with this owner, request and token. No other hold was touched. The
    ///   line may have changed: a place of the hold's own request is removed, since a late repeat of its `acquire` may have made
    ///   one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// assert_eq!(store.release(&hold)?, Released::Released);
    /// assert_eq!(store.release(&hold)?, Released::NotHeld); // a repeat
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError>;

    /// Gives many holds up, each as [`release`](Backend::release) does: 64 at most. Called by the watchdog, for guards whose own
    /// attempt was not answered, for grants that no caller takes, and by the thread for tasks.
    ///
    /// The answers are as those of [`withdraw_all`](Backend::withdraw_all), and so is the default.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// let released = store.release_all(&[hold, hold]);
    /// assert!(matches!(released[..], [Ok(Released::Released), Ok(Released::NotHeld)]));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn release_all(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        one_by_one(holds, |hold| self.release(hold))
    }

    /// Gives the hold up, whatever its count, but leaves its units taken for `lease` from now, as those of the owner's request
    /// `keeper`, with the same token and a hold count of 0.
    ///
    /// From then on nothing that names the former request finds the hold: a renewal, a repeat or a withdrawal that arrives late
    /// neither prolongs nor ends it. It ends by itself, and the lock goes on as after a holder that died.
    ///
    /// - [`Kept`](HoldKept::Kept): its end is `lease` from now, also if that is earlier than it was. After a repeat it is the earliest
    ///   that any attempt has named. The first in line was told to look, where it waited for a later end.
    /// - [`NotHeld`](HoldKept::NotHeld): the store has no hold with this owner and token that is of one of the two requests. Nothing has
    ///   changed.
    ///
    /// The default keeps nothing, and says so.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// let lease = Duration::from_secs(600);
    /// assert_eq!(store.keep(&hold, RequestId::new(7), lease)?, HoldKept::Kept);
    /// assert_eq!(store.keep(&hold, RequestId::new(7), lease)?, HoldKept::Kept); // a repeat
    /// assert_eq!(store.release(&hold)?, Released::NotHeld);
    /// assert!(matches!(store.acquire(&ask(&bob, 2))?, Acquired::Queued { rank: 0, .. }));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        let _ = (hold, keeper, lease);
        let message = "this backend can't keep a lock taken beyond the release of its hold";
        Err(BackendError::new(BackendErrorKind::InvalidConfig, message))
    }

    /// Keeps holds and places alive, and hands a lock on that it finds free. Called by the watchdog only.
    ///
    /// One answer for each item, in the same order. An item that could not be asked about is an `Err`. All places of one lock are
    /// heard before that lock is handed on: it goes to the first in line, whatever the order of the items. Locks have nothing to
    /// do with each other.
    ///
    /// - [`Renewed`](Renewal::Renewed): the hold lasts for `lease` from now.
    /// - [`Waiting`](Renewal::Waiting): the place lasts for its `ttl` from now.
    /// - [`Granted`](Renewal::Granted): the place has become a hold.
    /// - [`Lost`](Renewal::Lost): the store is sure that the hold is over, or that the place is gone, or has another
    ///   [ticket](Place::ticket). A place that is gone is not put back: the renewal may arrive after the release of the very hold that
    ///   the place became. After `Lost` a live waiter asks, with its ticket.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// let item = Renew::Hold { hold, holds: 1, lease: Duration::from_secs(30) };
    /// let client = ClientId::random();
    /// assert!(matches!(store.renew(client, &[item])[..], [Ok(Renewal::Renewed)]));
    /// store.release(&hold)?;
    /// assert!(matches!(store.renew(client, &[item])[..], [Ok(Renewal::Lost)]));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>>;

    /// Takes the request out of the line. Called when the last caller that wanted it has gone, and once more if an attempt of it
    /// was not answered, see [`attempt_ttl`](Backend::attempt_ttl).
    ///
    /// - [`Left`](Withdrawn::Left): the request is not in the line, and is granted nothing unless an attempt of it comes later.
    /// - [`WasGranted`](Withdrawn::WasGranted): it holds the lock, and goes on holding it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// store.acquire(&ask(&bob, 2))?;
    /// let place = Place::new(&lock, &bob, RequestId::new(2));
    /// assert_eq!(store.withdraw(&place)?, Withdrawn::Left);
    /// assert_eq!(store.inspect(&lock, 0..0)?.line_length, 0);
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError>;

    /// Takes many requests out of the line, each as [`withdraw`](Backend::withdraw) does. Called by the watchdog, for requests
    /// that were dropped and waits that are over, and by the thread for tasks: 64 at most.
    ///
    /// One answer for each, in the same order. They have nothing to do with each other: one that fails does not keep the
    /// others from their answers. It is one call, and bounded as a whole. The default asks one after the other; after
    /// [`Unavailable`](BackendErrorKind::Unavailable) it asks no more, and all that are left have that answer. So override it
    /// where the store can do many in one step or one round trip, and where some of its locks can be out of reach alone.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// store.acquire(&ask(&bob, 2))?;
    /// let places = [Place::new(&lock, &ann, RequestId::new(1)), Place::new(&lock, &bob, RequestId::new(2))];
    /// let withdrawn = store.withdraw_all(&places);
    /// assert!(matches!(withdrawn[..], [Ok(Withdrawn::WasGranted { .. }), Ok(Withdrawn::Left)]));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        one_by_one(places, |place| self.withdraw(place))
    }

    /// Moves the place of a request to the tail, by order of an operator, with a new ticket. The answers are those of
    /// [`withdraw`](Backend::withdraw). The waiter is told to look; whichever ticket it names, it keeps the new place.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// store.acquire(&ask(&bob, 2))?;
    /// assert_eq!(store.kick(&Place::new(&lock, &bob, RequestId::new(2)))?, Withdrawn::Left);
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError>;

    /// Takes the lock from all its holders, whichever they are, and hands it on. The line stays. The former holders are told by
    /// [`Wake::Taken`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// assert_eq!(store.force_release(&lock)?, ForceReleased::Taken);
    /// assert_eq!(store.force_release(&lock)?, ForceReleased::NotHeld);
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError>;

    /// Takes one hold from its owner, by order of an operator, and hands the lock on. The former holder is told by
    /// [`Wake::Taken`]; the default releases the hold, and the holder hears of it with its next renewal.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// assert_eq!(store.take_hold(&hold)?, ForceReleased::Taken);
    /// assert_eq!(store.take_hold(&hold)?, ForceReleased::NotHeld); // never another hold
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        self.release(hold).map(ForceReleased::from)
    }

    /// Tells the holders, the length of the line, how many of it are absent, and the waiters at the ranks `part`; rank 0 is next.
    /// Ranks beyond the end of the line are left out.
    ///
    /// The answer is one moment of the store. The work does not grow with the line: core asks for at most [`MOST_INSPECTED`] waiters
    /// at once, and as many are examined for absent ones. For `0..0` none are: core only wants to know whether the lock is held.
    ///
    /// A waiter of which nothing was heard for its place's time is shown as absent ([`Waiter::is_absent`]), also where no call has
    /// come to the line since.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::{*, Wait::*};
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new("bob:1"));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
    /// # let Acquired::Granted { token, .. } = store.acquire(&ask(&ann, 1))? else { panic!() };
    /// # let hold = Hold::new(&lock, &ann, RequestId::new(1), token);
    /// store.acquire(&ask(&bob, 2))?;
    /// let state = store.inspect(&lock, 0..100)?;
    /// assert_eq!((state.line_length, state.line.len()), (1, 1));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError>;

    /// Delivers wake-ups for this client to `sink` until the subscription is dropped. Called once, before all other calls.
    ///
    /// It returns when wake-ups arrive, or with the reason why they can't. A store where listening is dear may begin with the first
    /// request of the client that has to wait, before it answers that one, and end when none has waited for a while. Until then
    /// nothing arrives: the client learns with its next renewal what [`Wake::Taken`] would have told. After a gap the backend says
    /// [`Wake::Gap`]. Dropping the subscription ends it and its thread, and does not wait for the thread.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use fairlock_core::backend::*;
    /// # use fairlock_core::{ClientId, LockKind, LockName, OwnerId, crossbeam_channel::{Sender, unbounded}};
    /// # let store = fairlock::MemoryBackend::new();
    /// # let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// # let client = ClientId::random();
    /// # let (ann, bob) = (OwnerId::new("ann:1"), OwnerId::new(&format!("{client}:1")));
    /// # let ask = |owner, request| Acquire::new(Place::new(&lock, owner, RequestId::new(request)), Duration::from_secs(30));
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
    /// let (sender, grants) = unbounded();
    /// let _subscription = store.subscribe(client, Arc::new(Grants(sender)))?;
    /// store.acquire(&ask(&ann, 1))?;
    /// store.acquire(&ask(&bob, 2))?; // bob is an owner of this client
    /// store.force_release(&lock)?;
    /// assert_eq!(grants.try_recv(), Ok(RequestId::new(2)));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError>;

    /// How many connections for commands were replaced after they were lost, for
    /// [`Stats::reconnects`](crate::Stats::reconnects). The connection for wake-ups does not count: it says [`Wake::Gap`].
    /// Asks no server.
    fn reconnects(&self) -> u64 {
        0
    }

    /// Whether the store keeps locks of this kind, as it is set up. Core asks it for no others. The default keeps fair and plain
    /// locks: then each place takes one unit, and a backend need not look at `takes`. Asks no server.
    ///
    /// - The holds of a lock take at most its [capacity](crate::LockKind::capacity) together, and each has its own end.
    /// - First come, first served by units: a waiter that does not fit yet is not passed by a later one.
    /// - A release, a withdrawal and each call that finds holds over grant all waiters at the head that now fit.
    /// - A name that is held or waited for as another kind, or with another capacity, is a
    ///   [`Mismatch`](BackendErrorKind::Mismatch).
    ///
    /// ```
    /// # use fairlock_core::{LockKind, backend::Backend};
    /// assert!(fairlock::MemoryBackend::new().keeps(LockKind::Fair));
    /// ```
    fn keeps(&self, kind: LockKind) -> bool {
        !kind.is_shared()
    }

    /// Why it does not [`keep`](Backend::keeps) the other kinds, for the error of a caller that asks for one.
    fn keeps_only(&self) -> &'static str {
        "the backend has fair and plain locks only"
    }

    /// The clock that leases end by. [`ClientBuilder::build`](crate::ClientBuilder::build) refuses a client with another one: each
    /// would wait for a time that the other never reaches. None, the default, if any clock will do. Asks no server.
    ///
    /// ```
    /// # use fairlock_core::{Client, Error, ManualClock};
    /// let store = fairlock::MemoryBackend::new(); // on the system's clock
    /// let refused = Client::builder(store).clock(ManualClock::new()).build();
    /// assert!(matches!(refused, Err(Error::InvalidConfig { .. })));
    /// ```
    fn store_clock(&self) -> Option<Clock> {
        None
    }

    /// How long a call waits for its answer, at most. [`ClientBuilder::build`](crate::ClientBuilder::build) refuses a lease of less
    /// than twice this. None, the default, if calls do not wait. Asks no server.
    ///
    /// ```
    /// # use fairlock_core::backend::Backend;
    /// assert_eq!(fairlock::MemoryBackend::new().response_timeout(), None);
    /// ```
    fn response_timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether a call that is made now neither does I/O nor waits. Then a task makes its calls itself: it asks in its poll, and
    /// releases and withdraws in its drop. Else, by default, a thread of the client does that for it. Asked before each such call.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock_core::backend::Backend;
    /// # use fairlock::{MemoryBackend, Operation};
    /// let store = MemoryBackend::new();
    /// assert!(store.is_non_blocking());
    /// store.faults().delay_next(Operation::Acquire, 1, Duration::from_secs(1)); // that call sleeps
    /// assert!(!store.is_non_blocking());
    /// ```
    fn is_non_blocking(&self) -> bool {
        false
    }

    /// For how long after it was sent the store may begin what a call asks for: an [`acquire`](Backend::acquire), the place of a
    /// [`renew`](Backend::renew) that is put back, a [`force_release`](Backend::force_release), a
    /// [`keep`](Backend::keep). A network may deliver an attempt long after its repeat was answered; the store refuses one that is older
    /// than this. A request with an unanswered attempt is [withdrawn](Backend::withdraw) once more after that, so nothing of it lasts.
    /// None, the default, if nothing arrives late. Asks no server.
    ///
    /// ```
    /// # use fairlock_core::backend::Backend;
    /// assert_eq!(fairlock::MemoryBackend::new().attempt_ttl(), None);
    /// ```
    fn attempt_ttl(&self) -> Option<Duration> {
        None
    }

    /// Whether the lock's places are named by their owners alone, as in Redisson's line. Then a late attempt of an earlier request
    /// is taken for the owner's next one, so core lets that wait. Asks no server.
    ///
    /// ```
    /// # use fairlock_core::backend::{Backend, LockId};
    /// # use fairlock_core::{LockKind, LockName};
    /// let lock = LockId::new(LockName::new("orders")?, LockKind::Fair);
    /// assert!(!fairlock::MemoryBackend::new().keeps_place_by_owner(&lock));
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    fn keeps_place_by_owner(&self, lock: &LockId) -> bool {
        let _ = lock;
        false
    }

    /// The longest lease that the store grants. A client's default lease becomes this if it is longer, and
    /// [`ClientBuilder::build`](crate::ClientBuilder::build) refuses a longer one. None, the default, if there is no limit. Asks no
    /// server.
    ///
    /// ```
    /// # use fairlock_core::backend::Backend;
    /// assert_eq!(fairlock::MemoryBackend::new().longest_lease(), None);
    /// ```
    fn longest_lease(&self) -> Option<Duration> {
        None
    }

    /// Why it grants no [longer one](Backend::longest_lease), and what to do: for the error, after "the longest that the backend
    /// grants". The default says to shorten the lease. Asks no server.
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

/// The answers to these questions; after one that was not answered no other is asked, or each might wait as long.
fn one_by_one<Q, A>(questions: &[Q], ask: impl Fn(&Q) -> Answer<A>) -> Vec<Answer<A>> {
    let mut unanswered = None;
    let answer = |question| {
        let answer = unanswered.clone().map_or_else(|| ask(question), Err);
        unanswered =
            answer.as_ref().err().filter(|error| error.kind() == BackendErrorKind::Unavailable).cloned();
        answer
    };
    questions.iter().map(answer).collect()
}
