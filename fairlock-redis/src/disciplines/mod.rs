//! The rules that locks follow: how a request, a release or a heartbeat becomes a script, and what the reply means.

mod answers;

pub(crate) mod hold;
pub(crate) mod inspect;
pub(crate) mod line;
pub(crate) mod plain;
pub(crate) mod redisson;

use fairlock_core::backend::{Acquire, Acquired, BackendError, Place, Withdrawn};
use redis::Value;

pub(crate) use answers::renewed as renewed_rows;

use crate::inner::{Inner, Rules};
use crate::reply::Row;
use crate::run::Call;
use line::By;

/// The script that asks for a lock.
pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    match inner.rules(ask.place.lock) {
        Rules::Line => {
            inner.pools.beside.check(&ask.place.lock.name)?;
            line::acquire(inner, ask)
        }
        Rules::Redisson => redisson::acquire(inner, ask),
        Rules::Plain => plain::acquire(inner, ask),
    }
}

/// What its first reply means. Some answers need more than one script.
pub(crate) fn acquired(
    inner: &Inner,
    ask: &Acquire<'_>,
    call: &Call,
    reply: Value,
) -> Result<Acquired, BackendError> {
    match inner.rules(ask.place.lock) {
        Rules::Line => line::acquired(inner, ask, call, reply),
        Rules::Redisson => redisson::acquired(inner, &ask.place, call, &reply),
        Rules::Plain => plain::acquired(inner, &ask.place, call, &reply),
    }
}

/// The script that takes a request out of the line.
pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>, by: By) -> Result<Call, BackendError> {
    match inner.rules(place.lock) {
        Rules::Line => line::withdraw(inner, place, by),
        // Only our line restores places, and has to be told of a kick.
        Rules::Redisson => redisson::withdraw(inner, place),
        Rules::Plain => plain::withdraw(inner, place),
    }
}

pub(crate) fn withdrawn(inner: &Inner, place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
    match inner.rules(place.lock) {
        Rules::Line => line::withdrawn(inner, place, reply),
        Rules::Redisson | Rules::Plain => answers::withdrawn(&Row::of(reply)?),
    }
}
