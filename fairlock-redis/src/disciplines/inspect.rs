//! Looks at a lock: one script for each discipline, and what its reply says of holder and line.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{BackendError, Holder, LockId, LockState, RequestId, Waiter};
use redis::Value;

use crate::inner::Inner;
use crate::net::connection::Failure;
use crate::reply::{Row, items, number, text, time, token, written};
use crate::resp::rank_and_count;
use crate::run::{Call, run};
use crate::scripts;
use crate::settings::Discipline;

pub(crate) fn inspect(
    inner: &Inner,
    discipline: Discipline,
    lock: &LockId,
    part: Range<u64>,
) -> Result<LockState, BackendError> {
    state(inner, discipline, &run(&inner.servers, &call(inner, discipline, lock, part)?)?)
}

pub(crate) fn call(
    inner: &Inner,
    discipline: Discipline,
    lock: &LockId,
    part: Range<u64>,
) -> Result<Call, BackendError> {
    let script = match discipline {
        Discipline::HandOff => &scripts::HAND_OFF_INSPECT,
        Discipline::Redisson => &scripts::INSPECT,
    };
    let [from, many] = rank_and_count(&part);
    Ok(Call::new(script, &inner.keys(lock)?, &[from.into(), many.into()]))
}

pub(crate) fn state(inner: &Inner, discipline: Discipline, reply: &Value) -> Result<LockState, BackendError> {
    let row = Row::of(reply)?;
    let mut state = LockState::default();
    state.holder = holder(inner, &row)?;
    state.line_length = row.rank(2)?;
    let line = items(row.at(3)?)?;
    state.line = match discipline {
        Discipline::HandOff => line.chunks_exact(5).map(waiter).collect::<Result<_, _>>()?,
        Discipline::Redisson => line.chunks_exact(2).map(waiter_in_redisson).collect::<Result<_, _>>()?,
    };
    Ok(state)
}

/// Owner, request, how long it has waited, what is left of its place, label.
fn waiter(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
    waiter.request = u64::from_str_radix(&written(&place[1])?, 16).ok().map(RequestId::new);
    waiter.waiting = time(&place[2])?;
    waiter.place_left = time(&place[3])?;
    waiter.label = Some(written(&place[4])?.into_owned()).filter(|label| !label.is_empty());
    Ok(waiter)
}

/// Owner, and what is left of its time.
fn waiter_in_redisson(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
    waiter.place_left = time(&place[1])?;
    Ok(waiter)
}

/// The first two items of the reply: the holder, and the lease left.
fn holder(inner: &Inner, row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    // A field that cannot be read was written neither by fairlock nor by Redisson.
    read(row).map_err(|_| {
        Failure::refused("WRONGTYPE", "the holder can't be read").explain(&inner.servers, "inspect")
    })
}

fn read(row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    let [owner, count, grant @ ..] = items(row.at(0)?)? else { return Ok(None) };
    let count = u32::try_from(number(count)?).map_err(|_| row.unexpected())?;
    let mut holder = Holder::new(OwnerId::new(&written(owner)?), count);
    holder.lease_left = time(row.at(1)?)?;
    if let [fencing_token, label, held] = grant {
        holder.token = Some(token(fencing_token)?);
        holder.held_for = text(held)?.parse().ok().map(Duration::from_millis);
        holder.label = Some(written(label)?.into_owned()).filter(|label| !label.is_empty());
    }
    Ok(Some(holder))
}
