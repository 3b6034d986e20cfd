//! Looks at a lock: one script for each discipline, and what its reply says of holder and line.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{BackendError, Holder, LockId, LockState, MOST_INSPECTED, RequestId, Waiter};
use fairlock_core::{LockKind, OwnerId};
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
    let call = call(inner, rules, lock, part, examined, Kinds::This)?;
    state(inner, rules, lock.kind, &run(&inner.servers, &call)?)
}

/// Whether a name in use as another kind of lock is refused, or shown as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    This,
    Any,
}

/// `examined`: how many of the line are examined for absent ones.
pub(crate) fn call(
    inner: &Inner,
    rules: Rules,
    lock: &LockId,
    part: Range<u64>,
    examined: u64,
    kinds: Kinds,
) -> Result<Call, BackendError> {
    let [from, many] = rank_and_count(&part);
    let capacity = if kinds == Kinds::Any { 0 } else { u64::from(lock.kind.capacity()) };
    let arguments = [MOST_INSPECTED.into(), from.into(), many.into(), examined.into(), capacity.into()];
    let keys = inner.keys(lock)?;
    Ok(match rules {
        Rules::Line => Call::new(&scripts::LINE_INSPECT, &keys, &arguments),
        Rules::Redisson | Rules::Plain => Call::new(&scripts::INSPECT, &keys, &arguments[1..4]),
    })
}

pub(crate) fn state(
    inner: &Inner,
    rules: Rules,
    asked: LockKind,
    reply: &Value,
) -> Result<LockState, BackendError> {
    let row = Row::of(reply)?;
    let mut state = LockState::default();
    let line = if rules == Rules::Line {
        let is_told = |capacity: &u32| *capacity > 1 || asked.is_shared() && asked.capacity() == 1;
        state.capacity = u32::try_from(row.number(0)?).ok().filter(is_told);
        state.holders = items(row.at(3)?)?.chunks_exact(8).map(holder).collect::<Result<_, _>>()?;
        state.holders.sort_by_key(|holder| holder.token);
        state.unlisted_holders = row.rank(2)?.saturating_sub(state.holders.len() as u64);
        if state.unlisted_holders > 0 {
            let used = u32::try_from(row.rank(1)?).unwrap_or(u32::MAX);
            state.unlisted_units = used.saturating_sub(state.taken());
        }
        (state.line_length, state.absent) = (row.rank(4)?, row.rank(5)?);
        row.at(6)?
    } else {
        state.holders = holder_in_redisson(inner, &row)?.into_iter().collect();
        (state.line_length, state.absent) = (row.rank(2)?, row.rank(3)?);
        row.at(4)?
    };
    let line = items(line)?;
    state.line = match rules {
        Rules::Line => line.chunks_exact(5).map(waiter).collect::<Result<_, _>>()?,
        _ => line.chunks_exact(2).map(waiter_in_redisson).collect::<Result<_, _>>()?,
    };
    Ok(state)
}

/// Owner, request, how long it has waited, what is left of its place, and its label, which begins with `<takes>/<capacity> `.
fn waiter(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
    waiter.request = request(&place[1])?;
    waiter.waiting = time(&place[2])?;
    waiter.place_left = time(&place[3])?;
    let label = written(&place[4])?;
    let (units, label) = label.split_once(' ').unwrap_or((&label, ""));
    let takes = units.split_once('/').and_then(|(takes, _)| takes.parse().ok());
    waiter.takes = takes.unwrap_or(waiter.takes);
    waiter.label = Some(label.to_owned()).filter(|label| !label.is_empty());
    Ok(waiter)
}

fn request(written_in_hex: &Value) -> Result<Option<RequestId>, BackendError> {
    Ok(u64::from_str_radix(&written(written_in_hex)?, 16).ok().map(RequestId::new))
}

/// Owner, and what is left of its time.
fn waiter_in_redisson(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
    waiter.place_left = time(&place[1])?;
    Ok(waiter)
}

/// The first two items of the reply: the holder, and the lease left.
fn holder_in_redisson(inner: &Inner, row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
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

/// Owner, request, units, token, count, label, what is left of the lease, for how long it is held. What only our own holds have may be
/// empty.
fn holder(hold: &[Value]) -> Result<Holder, BackendError> {
    let small = |value: &Value| number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let mut holder = Holder::new(OwnerId::new(&written(&hold[0])?), small(&hold[4])?);
    holder.request = request(&hold[1])?;
    holder.takes = small(&hold[2])?;
    holder.token = if written(&hold[3])?.is_empty() { None } else { Some(token(&hold[3])?) };
    holder.label = Some(written(&hold[5])?.into_owned()).filter(|label| !label.is_empty());
    holder.lease_left = time(&hold[6])?;
    holder.held_for = time(&hold[7])?;
    Ok(holder)
}
