//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all waiters.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldCountSet, LockId, Place, Released,
};
use redis::Value;

use super::{Channels, Common};
use crate::rules::{By, Rules};
use crate::script::answers;
use crate::script::arguments::{Argument, millis};
use crate::script::reply::Row;
use crate::script::run::Call;
use crate::script::scripts::of_redisson as scripts;
use crate::shared::Shared;

pub(crate) struct Plain(Common);

impl Plain {
    pub(crate) fn new(shared: &Arc<Shared>, channels: &Arc<Channels>) -> Plain {
        Plain(Common { shared: Arc::clone(shared), channels: Arc::clone(channels) })
    }
}

impl Rules for Plain {
    fn keeps(&self, kind: LockKind) -> bool {
        kind == LockKind::Plain
    }

    fn acquire(&self, ask: &Acquire<'_>) -> Result<Call, BackendError> {
        let place = &ask.place;
        self.0.shared.calls.check(ask)?;
        let arguments = [
            place.owner.as_str().into(),
            place.request.into(),
            millis(ask.lease).into(),
            ask.label.into(),
            Argument::BeginBy,
        ];
        self.0.call(&scripts::PLAIN_ACQUIRE, place.lock, &arguments)
    }

    fn acquired(&self, ask: &Acquire<'_>, call: &Call, reply: Value) -> Result<Acquired, BackendError> {
        let read = |reply: &Value| answers::acquired(&Row::of(reply)?);
        self.0.acquired(&ask.place, call, &reply, read, |keys| keys.channel().text().to_owned())
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.0.set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        self.0.release(&scripts::PLAIN_RELEASE, hold)
    }

    fn renew_holds(&self, holds: &[&Hold<'_>], count: u32, lease: Duration) -> Result<Call, BackendError> {
        self.0.renew_holds(holds, count, lease)
    }

    fn renew_places(&self, lock: &LockId, places: &[(&Place<'_>, Duration)]) -> Result<Call, BackendError> {
        let mut arguments: Vec<Argument<'_>> = Vec::with_capacity(3 * places.len());
        for (place, lease) in places {
            arguments.extend_from_slice(&[
                place.owner.as_str().into(),
                place.request.into(),
                millis(*lease).into(),
            ]);
        }
        self.0.call(&scripts::PLAIN_RENEW, lock, &arguments)
    }

    fn withdraw(&self, place: &Place<'_>, _: By) -> Result<Call, BackendError> {
        let arguments = [place.owner.as_str().into(), place.request.into()];
        self.0.call(&scripts::PLAIN_WITHDRAW, place.lock, &arguments)
    }

    fn stop_listening(&self, place: &Place<'_>) {
        self.0.stop_listening(place);
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.0.force_release(&scripts::PLAIN_FORCE_RELEASE, lock)
    }
}
