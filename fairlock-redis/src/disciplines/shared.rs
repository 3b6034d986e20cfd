//! Locks with several holders, by the rules of the hand-off: a script that frees units grants the lock to all at the head of the
//! line that fit then, and tells them so.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Renew, Withdrawn,
};
use redis::Value;

use super::answers;
use super::hand_off::{By, acquired_by, options, resume};
use crate::inner::Inner;
use crate::reply::Row;
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts;

fn capacity(lock: &LockId) -> Argument<'static> {
    Argument::Number(lock.kind.capacity().into())
}

fn takes(place: &Place<'_>) -> Argument<'static> {
    Argument::Number(place.takes.into())
}

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let place = &ask.place;
    let arguments = [
        Argument::Member(place),
        millis(ask.lease).into(),
        millis(place.ttl).into(),
        options(inner, place.lock, Some(place)),
        ask.label.into(),
        takes(place),
        capacity(place.lock),
        place.ticket.into(),
        Argument::BeginBy,
    ];
    Ok(Call::new(&scripts::SHARED_ACQUIRE, &inner.keys(place.lock)?, &arguments))
}

pub(crate) fn acquired(inner: &Inner, call: &Call, reply: Value) -> Result<Acquired, BackendError> {
    acquired_by(inner, call, reply, answers::acquired)
}

pub(crate) fn release(inner: &Inner, hold: &Hold<'_>) -> Result<Released, BackendError> {
    let arguments = [Argument::Hold(hold), options(inner, hold.lock, None)];
    let call = Call::new(&scripts::SHARED_RELEASE, &inner.keys(hold.lock)?, &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    resume(inner, &row, || leave(inner, hold.lock, "".into(), By::Waiter));
    answers::released(&row)
}

/// Holds and places of one client and lock: the holds stand first.
pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    renewals: impl Iterator<Item = &'a Renew<'a>>,
) -> Result<Call, BackendError> {
    let (mut holds, mut places, mut any, mut ttl) = (Vec::new(), Vec::new(), None, Duration::ZERO);
    for renewal in renewals {
        match renewal {
            Renew::Hold { hold, holds: count, lease } => {
                holds.extend([Argument::Hold(hold), u64::from(*count).into(), millis(*lease).into()]);
            }
            Renew::Place { place, lease } => {
                (any, ttl) = (Some(place), ttl.max(place.ttl));
                places.extend([
                    Argument::Member(place),
                    millis(*lease).into(),
                    place.ticket.into(),
                    takes(place),
                ]);
            }
        }
    }
    // Without a place, it is the line's own.
    let ttl = if any.is_some() { millis(ttl).into() } else { "".into() };
    let n_holds = Argument::Number(holds.len() as u64 / 3);
    let head = [ttl, options(inner, lock, any), capacity(lock), Argument::BeginBy, n_holds];
    let arguments = [&head[..], &holds, &places].concat();
    Ok(Call::new(&scripts::SHARED_RENEW, &inner.keys(lock)?, &arguments))
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>, by: By) -> Result<Call, BackendError> {
    leave(inner, place.lock, Argument::Member(place), by)
}

pub(crate) fn withdrawn(inner: &Inner, place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
    let row = Row::of(reply)?;
    resume(inner, &row, || leave(inner, place.lock, "".into(), By::Waiter));
    answers::withdrawn(&row)
}

fn leave(inner: &Inner, lock: &LockId, member: Argument<'_>, by: By) -> Result<Call, BackendError> {
    let is_kick = u64::from(by == By::Operator).into();
    let arguments = [member, options(inner, lock, None), is_kick];
    Ok(Call::new(&scripts::SHARED_WITHDRAW, &inner.keys(lock)?, &arguments))
}

/// Takes this hold, or all of them.
pub(crate) fn force_release(
    inner: &Inner,
    lock: &LockId,
    only: Option<&Hold<'_>>,
) -> Result<ForceReleased, BackendError> {
    let mut arguments = vec![options(inner, lock, None), capacity(lock), Argument::BeginBy];
    arguments.extend(only.map(Argument::Hold));
    let call = Call::new(&scripts::SHARED_FORCE_RELEASE, &inner.keys(lock)?, &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    resume(inner, &row, || leave(inner, lock, "".into(), By::Waiter));
    answers::force_released(&row)
}
