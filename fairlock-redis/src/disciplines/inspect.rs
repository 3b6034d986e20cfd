//! Looks at a lock: one script for each discipline, and what its reply says of holder and line.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{BackendError, Holder, LockId, LockState, MOST_INSPECTED, RequestId, Waiter};
use redis::Value;

use crate::inner::{Inner, Rules};
use crate::net::connection::Failure;
use crate::reply::{Row, items, number, text, time, token, written};
use crate::resp::rank_and_count;
use crate::run::{Call, run};
use crate::scripts;

pub(crate) fn inspect(
    inner: &Inner,
    rules: Rules,
    lock: &LockId,
    part: Range<u64>,
) -> Result<LockState, BackendError> {
    let examined = if part.is_empty() { 0 } else { MOST_INSPECTED };
    state(inner, rules, &run(&inner.servers, &call(inner, rules, lock, part, examined)?)?)
}

/// `examined`: how many of the line are examined for absent ones.
pub(crate) fn call(
    inner: &Inner,
    rules: Rules,
    lock: &LockId,
    part: Range<u64>,
    examined: u64,
) -> Result<Call, BackendError> {
    let script = match rules {
        Rules::Shared => &scripts::SHARED_INSPECT,
        Rules::HandOff => &scripts::HAND_OFF_INSPECT,
        Rules::Redisson | Rules::Plain => &scripts::INSPECT,
    };
    let [from, many] = rank_and_count(&part);
    let capacity = u64::from(lock.kind.capacity());
    let arguments = [from.into(), many.into(), examined.into(), capacity.into()];
    let told = if rules == Rules::Shared { &arguments[..] } else { &arguments[..3] };
    Ok(Call::new(script, &inner.keys(lock)?, told))
}

pub(crate) fn state(inner: &Inner, rules: Rules, reply: &Value) -> Result<LockState, BackendError> {
    let row = Row::of(reply)?;
    let mut state = LockState::default();
    if rules == Rules::Shared {
        state.capacity = u32::try_from(row.number(1)?).ok();
        state.holders = items(row.at(0)?)?.chunks_exact(8).map(one_of_many).collect::<Result<_, _>>()?;
        state.holders.sort_by_key(|holder| holder.token);
    } else {
        state.holders = holder(inner, &row)?.into_iter().collect();
    }
    (state.line_length, state.absent) = (row.rank(2)?, row.rank(3)?);
    let line = items(row.at(4)?)?;
    state.line = match rules {
        Rules::HandOff => line.chunks_exact(5).map(waiter).collect::<Result<_, _>>()?,
        Rules::Shared => line.chunks_exact(5).map(waiter_for_units).collect::<Result<_, _>>()?,
        _ => line.chunks_exact(2).map(waiter_in_redisson).collect::<Result<_, _>>()?,
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

/// Owner, request, units, token, count, label, what is left of the lease, for how long it is held.
fn one_of_many(hold: &[Value]) -> Result<Holder, BackendError> {
    let small = |value: &Value| number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let mut holder = Holder::new(OwnerId::new(&written(&hold[0])?), small(&hold[4])?);
    holder.request = u64::from_str_radix(&written(&hold[1])?, 16).ok().map(RequestId::new);
    holder.takes = small(&hold[2])?;
    holder.token = Some(token(&hold[3])?);
    holder.label = Some(written(&hold[5])?.into_owned()).filter(|label| !label.is_empty());
    holder.lease_left = time(&hold[6])?;
    holder.held_for = time(&hold[7])?;
    Ok(holder)
}

/// Its label begins with `<takes>/<capacity> `.
fn waiter_for_units(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = waiter(place)?;
    let label = waiter.label.take().unwrap_or_default();
    let (units, label) = label.split_once(' ').unwrap_or((&label, ""));
    let takes = units.split_once('/').and_then(|(takes, _)| takes.parse().ok());
    waiter.takes = takes.unwrap_or(waiter.takes);
    waiter.label = Some(label.to_owned()).filter(|label| !label.is_empty());
    Ok(waiter)
}
