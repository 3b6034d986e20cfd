//! The plain lock, as Redisson's `RedissonLock`: no line, and one channel a lock for all waiters.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait,
};
use redis::Value;

use super::answers;
use crate::checks::invalid;
use crate::inner::Inner;
use crate::reply::Row;
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts;
use crate::wake_ups::Subscribed;

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let place = &ask.place;
    if inner.settings.durability.is_some() {
        let what = "a durable backend has fair locks only: a plain lock may be shared with Redisson, which grants it in the grace";
        return Err(invalid(what.to_owned()));
    }
    let arguments = [
        place.owner.as_str().into(),
        place.request.into(),
        millis(ask.lease).into(),
        ask.label.into(),
        Argument::BeginBy,
    ];
    Ok(Call::new(&scripts::PLAIN_ACQUIRE, &inner.keys(place.lock)?, &arguments))
}

/// The answer to this call, of which `reply` is the first reply.
pub(crate) fn acquired(
    inner: &Inner,
    place: &Place<'_>,
    call: &Call,
    reply: &Value,
) -> Result<Acquired, BackendError> {
    let answer = answers::acquired(&Row::of(reply)?)?;
    match answer {
        Acquired::Busy { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.wake_ups.settle(place, answer)),
    }
    let keys = inner.keys(place.lock)?;
    match inner.wake_ups.listen(place, || keys.channel().text().to_owned())? {
        Subscribed::Before => Ok(answer),
        Subscribed::JustNow => {
            let answer = answers::acquired(&Row::of(&run(&inner.servers, call)?)?)?;
            Ok(inner.wake_ups.settle(place, answer))
        }
    }
}

pub(crate) fn release(inner: &Inner, hold: &Hold<'_>) -> Result<Released, BackendError> {
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

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Call, BackendError> {
    let arguments = [place.owner.as_str().into(), place.request.into()];
    Ok(Call::new(&scripts::PLAIN_WITHDRAW, &inner.keys(place.lock)?, &arguments))
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = inner.keys(lock)?;
    let call = Call::new(&scripts::PLAIN_FORCE_RELEASE, &keys, &[keys.channel().into(), Argument::BeginBy]);
    answers::force_released(&Row::of(&run(&inner.servers, &call)?)?)
}
