//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all waiters.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};

use super::answers;
use crate::inner::Inner;
use crate::reply::Row;
use crate::resp::millis;
use crate::run::{Call, run};
use crate::scripts;
use crate::wake_ups::Subscribed;

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let keys = inner.keys(place.lock)?;
    let arguments =
        [place.owner.as_str().into(), place.request.into(), millis(ask.lease).into(), ask.label.into()];
    let call = Call::new(&scripts::PLAIN_ACQUIRE, &keys, &arguments);
    let acquire = || answers::acquired(&Row::of(&run(&inner.servers, &call)?)?);
    let answer = acquire()?;
    match answer {
        Acquired::Busy { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.wake_ups.settle(place, answer)),
    }
    match inner.wake_ups.listen(place, || keys.channel().text().to_owned())? {
        Subscribed::Before => Ok(answer),
        Subscribed::JustNow => Ok(inner.wake_ups.settle(place, acquire()?)),
    }
}

/// A bump (`again`) keeps the hold: without a line there are no waiters to let pass.
pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    if again.is_some() {
        return Ok(Released::Kept);
    }
    let keys = inner.keys(hold.lock)?;
    let arguments =
        [hold.owner.as_str().into(), hold.request.into(), hold.token.into(), keys.channel().into()];
    let call = Call::new(&scripts::PLAIN_RELEASE, &keys, &arguments);
    answers::released(&Row::of(&run(&inner.servers, &call)?)?)
}

pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let mut arguments = Vec::new();
    for (place, lease) in places {
        arguments.extend_from_slice(&[
            place.owner.as_str().into(),
            place.request.into(),
            millis(lease).into(),
        ]);
    }
    Ok(Call::new(&scripts::PLAIN_RENEW, &inner.keys(lock)?, &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
    let arguments = [place.owner.as_str().into(), place.request.into()];
    let call = Call::new(&scripts::PLAIN_WITHDRAW, &inner.keys(place.lock)?, &arguments);
    answers::withdrawn(&Row::of(&run(&inner.servers, &call)?)?)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = inner.keys(lock)?;
    let call = Call::new(&scripts::PLAIN_FORCE_RELEASE, &keys, &[keys.channel().into()]);
    answers::force_released(&Row::of(&run(&inner.servers, &call)?)?)
}
