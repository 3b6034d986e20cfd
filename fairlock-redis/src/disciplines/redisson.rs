//! Discipline `Redisson`: the fair lock whose line is shared with Java.
//!
//! Each waiter has a channel of its own, on which the releaser tells it to ask again. The list holds the order; the
//! sorted set holds the time at which each waiter counts as dead, and heartbeats keep our own entries alive in it.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait,
};
use redis::Value;

use super::answers;
use crate::inner::Inner;
use crate::reply::Row;
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts;
use crate::wake_ups::Subscribed;

/// The answer to this call, of which `reply` is the first reply. Subscribes a queued waiter to its channel, and asks once more
/// if it was not subscribed before.
pub(crate) fn acquired(
    inner: &Inner,
    place: &Place<'_>,
    call: &Call,
    reply: &Value,
) -> Result<Acquired, BackendError> {
    let answer = read_answer(inner, place, reply)?;
    match answer {
        Acquired::Queued { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.wake_ups.settle(place, answer)),
    }
    let keys = inner.keys(place.lock)?;
    match inner.wake_ups.listen(place, || keys.waiter_channel(place.owner.as_str()))? {
        Subscribed::Before => Ok(answer),
        Subscribed::JustNow => {
            let answer = read_answer(inner, place, &run(&inner.servers, call)?)?;
            Ok(inner.wake_ups.settle(place, answer))
        }
    }
}

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let place = &ask.place;
    let mode = match place.wait {
        Wait::No => "once",
        _ if inner.settings.refresh_on_retry => "refresh",
        _ => "wait",
    };
    let keys = inner.keys(place.lock)?;
    let arguments = [
        place.owner.as_str().into(),
        place.request.into(),
        millis(ask.lease).into(),
        millis(inner.time_of_place(place)).into(),
        millis(place.ttl).into(),
        mode.into(),
        keys.channel().into(),
        ask.label.into(),
        Argument::BeginBy,
    ];
    Ok(Call::new(&scripts::REDISSON_ACQUIRE, &keys, &arguments))
}

fn read_answer(inner: &Inner, place: &Place<'_>, reply: &Value) -> Result<Acquired, BackendError> {
    let row = Row::of(reply)?;
    if row.word == "queued" && row.number(3)? != 0 {
        log::warn!(
            target: "fairlock::acquire",
            event = "repaired", lock = place.lock.name.as_str(), owner = place.owner.as_str();
            "lock {}: queue and timeouts at {} disagreed about {}: repaired, it stands at the tail",
            place.lock.name,
            inner.servers,
            place.owner
        );
    }
    answers::acquired(&row)
}

pub(crate) fn release(inner: &Inner, hold: &Hold<'_>) -> Result<Released, BackendError> {
    let keys = inner.keys(hold.lock)?;
    let arguments =
        [hold.owner.as_str().into(), hold.request.into(), hold.token.into(), keys.channel().into()];
    let call = Call::new(&scripts::REDISSON_RELEASE, &keys, &arguments);
    answers::released(&Row::of(&run(&inner.servers, &call)?)?)
}

pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let keys = inner.keys(lock)?;
    let mut arguments = vec![keys.channel().into()];
    for (place, lease) in places {
        let (owner, wait) = (place.owner.as_str(), inner.time_of_place(place));
        arguments.extend_from_slice(&[
            owner.into(),
            place.request.into(),
            millis(wait).into(),
            millis(lease).into(),
        ]);
    }
    Ok(Call::new(&scripts::REDISSON_RENEW, &keys, &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Call, BackendError> {
    let keys = inner.keys(place.lock)?;
    let arguments = [
        place.owner.as_str().into(),
        place.request.into(),
        millis(inner.time_of_place(place)).into(),
        millis(place.ttl).into(),
        keys.channel().into(),
        Argument::BeginBy,
    ];
    Ok(Call::new(&scripts::REDISSON_WITHDRAW, &keys, &arguments))
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = inner.keys(lock)?;
    let call =
        Call::new(&scripts::REDISSON_FORCE_RELEASE, &keys, &[keys.channel().into(), Argument::BeginBy]);
    answers::force_released(&Row::of(&run(&inner.servers, &call)?)?)
}
