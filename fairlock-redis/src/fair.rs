//! Discipline `Redisson`: the fair lock whose line is shared with Java.
//!
//! Everybody in line has a channel of his own, on which the releaser tells him to look. The order is in the list;
//! the sorted set only says who is dead, and heartbeats keep our own entries alive in it.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Renewal, Wait, Withdrawn,
};
use redis::Value;

use crate::backend::Inner;
use crate::ears::Heeded;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys, lock_channel, waiter_channel};
use crate::reply::{Row, items};
use crate::run::{Call, run};
use crate::scripts;
use crate::text::{millis, request, token};

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let call = acquire_call(inner, ask)?;
    let answer = acquired(inner, place, &run(&inner.lanes, &call)?)?;
    match answer {
        Acquired::Queued { .. } if place.wait != Wait::No => {}
        _ => return Ok(inner.ears.settle(place, answer)),
    }
    // A release between the answer and the subscription told nobody: so it is asked again once we hear.
    match inner.ears.listen(inner, place, || waiter_channel(place.lock, place.owner.as_str()))? {
        Heeded::Already => Ok(answer),
        Heeded::FromNowOn => {
            let answer = acquired(inner, place, &run(&inner.lanes, &call)?)?;
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
    match row.word {
        "granted" => Ok(Acquired::Granted { token: row.token(0)?, lease: row.millis(1)? }),
        "queued" => {
            if row.number(2)? != 0 {
                let lock = &place.lock.name;
                let server = inner.lanes.address();
                log::warn!(
                    target: "fairlock::acquire",
                    "lock {lock}: queue and timeouts at {server} disagreed about {}: repaired, it stands at the tail",
                    place.owner
                );
            }
            Ok(Acquired::Queued { rank: row.rank(0)?, look_again_in: row.look_again_in(1)? })
        }
        "busy" => Ok(Acquired::Busy { look_again_in: row.look_again_in(0)? }),
        _ => Err(row.unexpected()),
    }
}

pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    let keys = Keys::of(hold.lock)?;
    let again_wait = again.map_or(String::new(), |ask| millis(inner.wait_of(&ask.place)));
    let call = Call::new(
        &scripts::FAIR_RELEASE,
        &[&keys.lock, &keys.queue, &keys.timeouts, &keys.token],
        &[
            hold.owner.as_str(),
            &request(hold.request),
            &token(hold.token),
            &lock_channel(hold.lock),
            &again_wait,
        ],
    );
    released(&run(&inner.lanes, &call)?)
}

/// The reply to a release, of any discipline.
pub(crate) fn released(reply: &Value) -> Result<Released, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "released" => Ok(Released::Released),
        "not_held" => Ok(Released::NotHeld),
        "kept" => Ok(Released::Kept),
        "queued" => Ok(Released::Queued { rank: row.rank(0)?, look_again_in: row.look_again_in(1)? }),
        _ => Err(row.unexpected()),
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

/// The rows of a renewal of places, of either kind of lock: one for each of `n` places.
pub(crate) fn renewed(reply: &Value, n: usize) -> Result<Vec<Result<Renewal, BackendError>>, BackendError> {
    let rows = items(reply)?;
    if rows.len() != n {
        return Err(crate::reply::unintelligible(reply));
    }
    Ok(rows.iter().map(renewal).collect())
}

fn renewal(reply: &Value) -> Result<Renewal, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "granted" => Ok(Renewal::Granted { token: row.token(0)?, lease: row.millis(1)? }),
        "waiting" => Ok(Renewal::Waiting { rank: row.rank(0)?, look_again_in: row.look_again_in(1)? }),
        "lost" => Ok(Renewal::Lost),
        _ => Err(row.unexpected()),
    }
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
    withdrawn(&run(&inner.lanes, &call)?)
}

/// The reply to a withdrawal, of either kind of lock.
pub(crate) fn withdrawn(reply: &Value) -> Result<Withdrawn, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "left" => Ok(Withdrawn::Left),
        "was_granted" => Ok(Withdrawn::WasGranted { token: row.token(0)?, lease: row.millis(1)? }),
        _ => Err(row.unexpected()),
    }
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = Keys::of(lock)?;
    let call = Call::new(
        &scripts::FAIR_FORCE_RELEASE,
        &[&keys.lock, &keys.queue, &keys.timeouts, &keys.token],
        &[&lock_channel(lock), CLIENT_CHANNEL_PREFIX, lock.name.as_str()],
    );
    force_released(&run(&inner.lanes, &call)?)
}

/// The reply to a forced release, of either kind of lock.
pub(crate) fn force_released(reply: &Value) -> Result<ForceReleased, BackendError> {
    let row = Row::of(reply)?;
    match row.word {
        "taken" => Ok(ForceReleased::Taken),
        "not_held" => Ok(ForceReleased::NotHeld),
        _ => Err(row.unexpected()),
    }
}
