//! Reads the state of a lock in one round trip.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{BackendError, BackendErrorKind, Holder, LockId, LockState, Waiter};

use redis::Value;

use crate::backend::Inner;
use crate::keys::Keys;
use crate::reply::{Row, items, number, text, time, token, written};
use crate::run::{Call, run};
use crate::scripts;
use crate::text::rank_and_count;

pub(crate) fn inspect(inner: &Inner, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
    state(inner, &run(&inner.servers, &look(lock, part)?)?)
}

pub(crate) fn look(lock: &LockId, part: Range<u64>) -> Result<Call, BackendError> {
    let keys = Keys::of(lock)?;
    let [from, many] = rank_and_count(&part);
    let keys = [keys.lock.as_str(), &keys.queue, &keys.timeouts, &keys.token];
    Ok(Call::new(&scripts::INSPECT, &keys, &[&from, &many]))
}

pub(crate) fn state(inner: &Inner, reply: &Value) -> Result<LockState, BackendError> {
    let row = Row::of(reply)?;
    let mut state = LockState::default();
    state.holder = holder(inner, &row)?;
    state.line_length = row.rank(3)?;
    for pair in items(row.at(4)?)?.chunks_exact(2) {
        let mut waiter = Waiter::new(OwnerId::new(&written(&pair[0])?));
        waiter.place_left = time(&pair[1])?;
        state.line.push(waiter);
    }
    Ok(state)
}

/// A field that can't be read was not written by us, nor by Redisson.
pub(crate) fn holder(inner: &Inner, row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    read(row).map_err(|_| {
        let (at, what) = (&inner.servers, "something that is not ours lies under the key");
        let message = format!("Redis at {at}, inspect: {what} (the holder can't be read)");
        BackendError::new(BackendErrorKind::Corrupt, message)
    })
}

fn read(row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    let [owner, count, ..] = items(row.at(0)?)? else { return Ok(None) };
    let count = u32::try_from(number(count)?).map_err(|_| row.unexpected())?;
    let mut holder = Holder::new(OwnerId::new(&written(owner)?), count);
    holder.lease_left = time(row.at(1)?)?;
    // The description is of the latest grant to one of ours: it is this holder's only if it names him.
    if let [described, grant, label, held] = items(row.at(2)?)?
        && written(described)? == holder.owner.as_str()
    {
        holder.token = Some(token(grant)?);
        holder.held_for = text(held)?.parse().ok().map(Duration::from_millis);
        holder.label = Some(written(label)?.into_owned()).filter(|label| !label.is_empty());
    }
    Ok(Some(holder))
}
