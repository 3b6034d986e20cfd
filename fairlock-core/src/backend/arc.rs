//! A shared backend is a backend.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use crate::{ClientId, Clock, LockKind};

/// Each method is passed on, also those with a default, which would not be as quick.
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        (**self).acquire(ask)
    }

    fn acquire_all(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        (**self).acquire_all(asks)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        (**self).set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        (**self).release(hold)
    }

    fn renew(&self, client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        (**self).renew(client, items)
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        (**self).withdraw(place)
    }

    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        (**self).withdraw_all(places)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        (**self).kick(place)
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        (**self).force_release(lock)
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        (**self).take_hold(hold)
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

    fn keeps(&self, kind: LockKind) -> bool {
        (**self).keeps(kind)
    }

    fn store_clock(&self) -> Option<Clock> {
        (**self).store_clock()
    }

    fn response_timeout(&self) -> Option<Duration> {
        (**self).response_timeout()
    }

    fn attempt_ttl(&self) -> Option<Duration> {
        (**self).attempt_ttl()
    }

    fn keeps_place_by_owner(&self, lock: &LockId) -> bool {
        (**self).keeps_place_by_owner(lock)
    }

    fn longest_lease(&self) -> Option<Duration> {
        (**self).longest_lease()
    }
}
