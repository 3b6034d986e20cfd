//! Discipline `Redisson`: the fair lock whose line is shared with Java.
//!
//! Everybody in line has a channel of his own, on which the releaser tells him to look. The order is in the list;
//! the sorted set only says who is dead, and heartbeats keep our own entries alive in it.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};
use redis::Value;

use crate::answers;
use crate::backend::Inner;
use crate::ears::Subscribed;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys, lock_channel, waiter_channel};
use crate::reply::Row;
use crate::run::{Call, run};
use crate::scripts;
use crate::text::{millis, request, token};

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let call = acquire_call(inner, ask)?;
    let answer = acquired(inner, place, &run(&inner.servers, &call)?)?;
    heeded(inner, place, &call, answer)
}

/// Who is queued listens from now on. A release between the answer and the subscription told nobody: so it is asked
/// again once we hear.
fn heeded(inner: &Inner, place: &Place<'_>, ask: &Call, answer: Acquired) -> Result<Acquired, BackendError> {
    match answer {
        Acquired::Queued { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.ears.settle(place, answer)),
    }
    match inner.ears.listen(inner, place, || waiter_channel(place.lock, place.owner.as_str()))? {
        Subscribed::Before => Ok(answer),
        Subscribed::JustNow => {
            let answer = acquired(inner, place, &run(&inner.servers, ask)?)?;
            Ok(inner.ears.settle(place, answer))
        }
    }
}

fn acquire_call(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let place = &ask.place;
    let keys = Keys::of(place.lock)?;
    let mode = match place.wait {
        Wait::No => "once",
        _ if inner.settings.refresh_on_retry => "refresh",
        _ => "wait",
    };
    Ok(Call::new(
        &scripts::FAIR_ACQUIRE,
        &[&keys.lock, &keys.queue, &keys.timeouts, &keys.token],
        &[
            place.owner.as_str(),
            &request(place.request),
            &millis(ask.lease),
            &millis(inner.wait_of(place)),
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
    answers::acquired(reply)
}

pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    let keys = Keys::of(hold.lock)?;
    let new = again.map_or_else(Default::default, |ask| {
        [request(ask.place.request), millis(inner.wait_of(&ask.place)), millis(ask.lease)]
    });
    let call = Call::new(
        &scripts::FAIR_RELEASE,
        &[&keys.lock, &keys.queue, &keys.timeouts, &keys.token],
        &[
            hold.owner.as_str(),
            &request(hold.request),
            &token(hold.token),
            &lock_channel(hold.lock),
            &new[0],
            &new[1],
            &new[2],
        ],
    );
    match (answers::released(&run(&inner.servers, &call)?)?, again) {
        (Released::Again(answer), Some(ask)) => {
            heeded(inner, &ask.place, &acquire_call(inner, ask)?, answer).map(Released::Again)
        }
        (answer, _) => Ok(answer),
    }
}

pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let keys = Keys::of(lock)?;
    let mut arguments = vec![lock_channel(lock)];
    for (place, lease) in places {
        let wait = inner.wait_of(place);
        arguments.extend([place.owner.to_string(), request(place.request), millis(wait), millis(lease)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let keys = [&*keys.lock, &keys.queue, &keys.timeouts, &keys.token];
    Ok(Call::new(&scripts::FAIR_RENEW, &keys, &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
    let keys = Keys::of(place.lock)?;
    let call = Call::new(
        &scripts::FAIR_WITHDRAW,
        &[&keys.lock, &keys.queue, &keys.timeouts, &keys.token],
        &[
            place.owner.as_str(),
            &request(place.request),
            &millis(inner.wait_of(place)),
            &millis(place.ttl),
            &lock_channel(place.lock),
        ],
    );
    answers::withdrawn(&run(&inner.servers, &call)?)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = Keys::of(lock)?;
    let call = Call::new(
        &scripts::FAIR_FORCE_RELEASE,
        &[&keys.lock, &keys.queue, &keys.timeouts, &keys.token],
        &[&lock_channel(lock), CLIENT_CHANNEL_PREFIX, lock.name.as_str()],
    );
    answers::force_released(&run(&inner.servers, &call)?)
}
