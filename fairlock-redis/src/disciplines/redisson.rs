//! Discipline `Redisson`: the fair lock whose line is shared with Java.
//!
//! Each waiter has a channel of its own, on which the releaser tells it to ask again. The list holds the order; the
//! sorted set holds the time at which each waiter counts as dead, and heartbeats keep our own entries alive in it.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};
use redis::Value;

use super::answers;
use crate::inner::Inner;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys, lock_channel, waiter_channel};
use crate::reply::Row;
use crate::run::{Call, run};
use crate::scripts;
use crate::text::millis;
use crate::wake_ups::Subscribed;

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let call = acquire_call(inner, ask)?;
    let answer = acquired(inner, place, &run(&inner.servers, &call)?)?;
    subscribed(inner, place, &call, answer)
}

/// Subscribes a queued waiter to its channel, and asks once more if it was not subscribed before.
fn subscribed(
    inner: &Inner,
    place: &Place<'_>,
    ask: &Call,
    answer: Acquired,
) -> Result<Acquired, BackendError> {
    match answer {
        Acquired::Queued { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.wake_ups.settle(place, answer)),
    }
    match inner.wake_ups.listen(place, || waiter_channel(place.lock, place.owner.as_str()))? {
        Subscribed::Before => Ok(answer),
        Subscribed::JustNow => {
            let answer = acquired(inner, place, &run(&inner.servers, ask)?)?;
            Ok(inner.wake_ups.settle(place, answer))
        }
    }
}

fn acquire_call(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let place = &ask.place;
    let mode = match place.wait {
        Wait::No => "once",
        _ if inner.settings.refresh_on_retry => "refresh",
        _ => "wait",
    };
    Ok(Call::new(
        &scripts::REDISSON_ACQUIRE,
        &Keys::of(place.lock)?,
        &[
            place.owner.as_str(),
            &place.request.to_string(),
            &millis(ask.lease),
            &millis(inner.time_of_place(place)),
            &millis(place.ttl),
            mode,
            &lock_channel(place.lock),
            ask.label,
        ],
    ))
}

fn acquired(inner: &Inner, place: &Place<'_>, reply: &Value) -> Result<Acquired, BackendError> {
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

pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    let new = again.map_or_else(Default::default, |ask| {
        [ask.place.request.to_string(), millis(inner.time_of_place(&ask.place)), millis(ask.lease)]
    });
    let call = Call::new(
        &scripts::REDISSON_RELEASE,
        &Keys::of(hold.lock)?,
        &[
            hold.owner.as_str(),
            &hold.request.to_string(),
            &hold.token.to_string(),
            &lock_channel(hold.lock),
            &new[0],
            &new[1],
            &new[2],
        ],
    );
    match (answers::released(&Row::of(&run(&inner.servers, &call)?)?)?, again) {
        (Released::Again(answer), Some(ask)) => {
            subscribed(inner, &ask.place, &acquire_call(inner, ask)?, answer).map(Released::Again)
        }
        (answer, _) => Ok(answer),
    }
}

pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let mut arguments = vec![lock_channel(lock)];
    for (place, lease) in places {
        let wait = inner.time_of_place(place);
        arguments.extend([place.owner.to_string(), place.request.to_string(), millis(wait), millis(lease)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Ok(Call::new(&scripts::REDISSON_RENEW, &Keys::of(lock)?, &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
    let call = Call::new(
        &scripts::REDISSON_WITHDRAW,
        &Keys::of(place.lock)?,
        &[
            place.owner.as_str(),
            &place.request.to_string(),
            &millis(inner.time_of_place(place)),
            &millis(place.ttl),
            &lock_channel(place.lock),
        ],
    );
    answers::withdrawn(&Row::of(&run(&inner.servers, &call)?)?)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let call = Call::new(
        &scripts::REDISSON_FORCE_RELEASE,
        &Keys::of(lock)?,
        &[&lock_channel(lock), CLIENT_CHANNEL_PREFIX, lock.name.as_str()],
    );
    answers::force_released(&Row::of(&run(&inner.servers, &call)?)?)
}
