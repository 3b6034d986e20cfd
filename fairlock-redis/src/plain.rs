//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all who wait.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};

use crate::answers;
use crate::backend::Inner;
use crate::ears::Subscribed;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys, lock_channel};
use crate::run::{Call, run};
use crate::scripts;
use crate::text::{millis, request, token};

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let keys = Keys::of(place.lock)?;
    let call = Call::new(
        &scripts::PLAIN_ACQUIRE,
        &[&keys.lock, &keys.token],
        &[place.owner.as_str(), &request(place.request), &millis(ask.lease), ask.label],
    );
    let answer = answers::acquired(&run(&inner.servers, &call)?)?;
    match answer {
        Acquired::Busy { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.ears.settle(place, answer)),
    }
    // A release between the answer and the subscription told nobody: so it is asked again once we hear.
    match inner.ears.listen(inner, place, || lock_channel(place.lock))? {
        Subscribed::Before => Ok(answer),
        Subscribed::JustNow => Ok(inner.ears.settle(place, answers::acquired(&run(&inner.servers, &call)?)?)),
    }
}

/// There is no line, so with `again` nobody can be said to wait: the hold stays.
pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    if again.is_some() {
        return Ok(Released::Kept);
    }
    let keys = Keys::of(hold.lock)?;
    let arguments =
        [hold.owner.as_str(), &request(hold.request), &token(hold.token), &lock_channel(hold.lock)];
    let call = Call::new(&scripts::PLAIN_RELEASE, &[&keys.lock, &keys.token], &arguments);
    answers::released(&run(&inner.servers, &call)?)
}

pub(crate) fn renew<'a>(
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let keys = Keys::of(lock)?;
    let mut arguments = Vec::new();
    for (place, lease) in places {
        arguments.extend([place.owner.to_string(), request(place.request), millis(lease)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(Call::new(&scripts::PLAIN_RENEW, &[&keys.lock, &keys.token], &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
    let keys = Keys::of(place.lock)?;
    let arguments = [place.owner.as_str(), &request(place.request)];
    answers::withdrawn(&run(
        &inner.servers,
        &Call::new(&scripts::PLAIN_WITHDRAW, &[&keys.lock, &keys.token], &arguments),
    )?)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = Keys::of(lock)?;
    let arguments = [&lock_channel(lock), CLIENT_CHANNEL_PREFIX, lock.name.as_str()];
    let call = Call::new(&scripts::PLAIN_FORCE_RELEASE, &[&keys.lock, &keys.token], &arguments);
    answers::force_released(&run(&inner.servers, &call)?)
}
