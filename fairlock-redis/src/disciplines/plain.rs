//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all waiters.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};

use super::answers;
use crate::inner::Inner;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys, lock_channel};
use crate::reply::Row;
use crate::run::{Call, run};
use crate::scripts;
use crate::text::millis;
use crate::wake_ups::Subscribed;

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let call = Call::new(
        &scripts::PLAIN_ACQUIRE,
        &Keys::of(place.lock)?,
        &[place.owner.as_str(), &place.request.to_string(), &millis(ask.lease), ask.label],
    );
    let acquire = || answers::acquired(&Row::of(&run(&inner.servers, &call)?)?);
    let answer = acquire()?;
    match answer {
        Acquired::Busy { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.wake_ups.settle(place, answer)),
    }
    match inner.wake_ups.listen(place, || lock_channel(place.lock))? {
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
    let arguments =
        [hold.owner.as_str(), &hold.request.to_string(), &hold.token.to_string(), &lock_channel(hold.lock)];
    let call = Call::new(&scripts::PLAIN_RELEASE, &Keys::of(hold.lock)?, &arguments);
    answers::released(&Row::of(&run(&inner.servers, &call)?)?)
}

pub(crate) fn renew<'a>(
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let mut arguments = Vec::new();
    for (place, lease) in places {
        arguments.extend([place.owner.to_string(), place.request.to_string(), millis(lease)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(Call::new(&scripts::PLAIN_RENEW, &Keys::of(lock)?, &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
    let arguments = [place.owner.as_str(), &place.request.to_string()];
    let call = Call::new(&scripts::PLAIN_WITHDRAW, &Keys::of(place.lock)?, &arguments);
    answers::withdrawn(&Row::of(&run(&inner.servers, &call)?)?)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let arguments = [&lock_channel(lock), CLIENT_CHANNEL_PREFIX, lock.name.as_str()];
    let call = Call::new(&scripts::PLAIN_FORCE_RELEASE, &Keys::of(lock)?, &arguments);
    answers::force_released(&Row::of(&run(&inner.servers, &call)?)?)
}
