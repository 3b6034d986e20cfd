//! What a store has to do, and nothing else: decide who is next, atomically, by the server's clock.
//!
//! A backend has no policy: time-outs, retries, waiting, and the verdict that a hold is lost are core's. It may
//! change until 1.0. `fairlock-memory` is the example to read; the conformance suite (feature `conformance`)
//! is what a new one has to pass.

mod error;
mod messages;
mod wake;

use std::ops::Range;
use std::sync::Arc;

pub use error::{BackendError, BackendErrorKind};
pub use messages::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, Holder, LockId, LockState, Place, Released, Renew,
    Renewal, RequestId, Wait, Waiter, Withdrawn,
};
pub use wake::{Subscription, Wake, WakeSink};

use crate::ClientId;

/// How many waiters one [`inspect`](Backend::inspect) reads at the most: it keeps a server busy for a few milliseconds.
pub const MOST_INSPECTED: u64 = 500;

/// A store that keeps locks.
///
/// Each method is one question; it blocks its caller for at most the backend's own response time-out and may be
/// called from any thread, many at once. `Err` means *unknown*: the request may have been carried out. So each
/// request may be repeated, and the same request with the same [`RequestId`] does the same only once.
pub trait Backend: Send + Sync + 'static {
    /// Takes the lock, or keeps a place in its line ([`Wait::No`]: or does nothing). Called by the thread that
    /// wants the lock, again after each wake-up, and by the watchdog for a request that nobody waits on.
    ///
    /// A repeat by the holder, with the same request number, is granted with the same token. A request that has no place
    /// but a [ticket](Place::ticket) gets the place with that ticket back, whatever has become of it; not if the ticket is
    /// none that the lock can have given out, nor after a [`kick`](Backend::kick).
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError>;

    /// Says that the hold count is now `holds`. Called at each re-entry and each inner unlock.
    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError>;

    /// Gives the hold up and hands on; with `again` (of a fair lock), only if somebody waits, and then queues that
    /// request behind them.
    ///
    /// A hold with another request or token than the server's is `NotHeld`, and no other hold is touched. The line may
    /// change: a place of the hold's own request is removed, since a late repeat of its ask may have made one.
    fn release(&self, hold: &Hold<'_>, again: Option<&Acquire<'_>>) -> Result<Released, BackendError>;

    /// Keeps holds and places alive, as many as there are, and hands on where a lock is found free: to the first in line of
    /// all who speak in this call, so the places of one lock are all heard before anything is decided about that lock. (Those of
    /// different locks have nothing to do with each other.) One answer an item, in the same order; an `Err` item is
    /// unknown. Called by the watchdog only.
    ///
    /// A place that is gone may be put back at its ticket; but not if that ticket may have been served: a renewal may
    /// come after the release of the very hold that the place became. [`Renewal::Lost`] has a live waiter ask, with its
    /// ticket.
    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>>;

    /// Leaves the line, if the request is still in it.
    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError>;

    /// The same, by order of an operator: if the request still lives it asks again, and then it stands at the tail,
    /// whatever its ticket is.
    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError>;

    /// Takes the lock from whoever holds it and hands on; tells the holder by [`Wake::Taken`].
    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError>;

    /// Who holds, how many wait, and those of the line who stand at the ranks `part`: 0 is next. What lies beyond the
    /// end of the line is left out. The cost is that of `part`, not that of the line; core asks for at most
    /// [`MOST_INSPECTED`] at once, and for none (`0..0`) if it only wants to know whether the lock is held.
    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError>;

    /// Delivers wake-ups for this client to `sink` until the subscription is dropped. Called once, before
    /// anything else; returns when wake-ups arrive, or with the reason why they can't.
    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError>;

    /// For [`Stats::reconnects`](crate::Stats::reconnects): how many connections for commands were made anew after they
    /// were lost. That of the wake-ups is not one of them: it says [`Wake::Gap`]. Asks nobody.
    fn reconnects(&self) -> u64 {
        0
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        (**self).acquire(ask)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        (**self).set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>, again: Option<&Acquire<'_>>) -> Result<Released, BackendError> {
        (**self).release(hold, again)
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        (**self).renew(client, items)
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        (**self).withdraw(place)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        (**self).kick(place)
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        (**self).force_release(lock)
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        (**self).inspect(lock, part)
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        (**self).subscribe(client, sink)
    }

    fn reconnects(&self) -> u64 {
        (**self).reconnects()
    }
}
