//! Discipline `HandOff`: the releasing script itself makes the next waiter the holder, and tells it so.
//!
//! One trip from release to the next holder, and no work that grows with the line. Each client has one channel for all
//! its messages, so waiting needs no subscription of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};

use super::answers;
use crate::inner::Inner;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys};
use crate::reply::Row;
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts;
use crate::two_lines::OtherLine;

/// Whether the server sees every subscriber.
fn sees_all(inner: &Inner) -> Argument<'static> {
    flag(inner.servers.sees_all_subscribers())
}

/// Whether the client knows that it is cut off: its waiters count as present all the same.
fn is_cut_off(inner: &Inner, place: &Place<'_>) -> Argument<'static> {
    flag(inner.wake_ups.is_cut_off(place))
}

fn flag(is_set: bool) -> Argument<'static> {
    u64::from(is_set).into()
}

/// Whether the lock is free only because the script has reached its limit of absent waiters.
fn has_stopped(row: &Row<'_>) -> bool {
    let stopped = match row.word {
        "released" | "not_held" | "left" | "taken" => row.number(0),
        "busy" => row.number(1),
        _ => return false,
    };
    stopped.is_ok_and(|stopped| stopped == 1)
}

/// Hands the lock on where the script with this reply has stopped; otherwise it would be free until the next heartbeat.
/// (A waiter needs no help: it is told to ask again at once.)
///
/// What the caller asked for is done, so no failure in here changes its answer: the heartbeats do the rest then. The loop
/// ends where the line does, and starts no further script after one response time-out.
fn resume(inner: &Inner, lock: &LockId, keys: &Arc<Keys>, row: &Row<'_>) {
    let mut stopped = has_stopped(row);
    let until = Instant::now() + inner.settings.timeouts.response;
    while stopped && Instant::now() < until {
        // Without an owner none leaves, and the script only hands a free lock on.
        let reply = run(&inner.servers, &leave(inner, lock, keys, ["".into(); 2], By::Waiter));
        stopped = reply.is_ok_and(|reply| Row::of(&reply).is_ok_and(|row| has_stopped(&row)));
    }
}

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let (place, lock) = (&ask.place, ask.place.lock);
    let keys = inner.keys(lock)?;
    let [other_line, other_times] = inner.two_lines.keys(&lock.name, &keys);
    let arguments = [
        place.owner.as_str().into(),
        place.request.into(),
        millis(ask.lease).into(),
        millis(place.ttl).into(),
        if place.wait == Wait::No { "once" } else { "wait" }.into(),
        ask.label.into(),
        sees_all(inner),
        CLIENT_CHANNEL_PREFIX.into(),
        keys.lock().into(),
        is_cut_off(inner, place),
        place.ticket.into(),
        keys.channel().into(),
        other_line,
        other_times,
    ];
    let call = Call::new(&scripts::HAND_OFF_ACQUIRE, &keys, &arguments);
    let mut until = None;
    loop {
        let reply = run(&inner.servers, &call)?;
        let row = Row::of(&reply)?;
        let until = *until.get_or_insert_with(|| Instant::now() + inner.settings.timeouts.response);
        // An attempt that does not wait leaves nothing behind, so it is repeated as a whole.
        if has_stopped(&row) && Instant::now() < until {
            continue;
        }
        if row.word == "queued" {
            inner.two_lines.seen(&lock.name, OtherLine::read(row.number(4)?));
        }
        return answers::acquired(&row);
    }
}

pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    let none: Argument<'_> = "".into();
    let again = again.map_or([none; 4], |ask| {
        let place = &ask.place;
        [place.request.into(), millis(ask.lease).into(), millis(place.ttl).into(), ask.label.into()]
    });
    let keys = inner.keys(hold.lock)?;
    let [other_line, other_times] = inner.two_lines.keys(&hold.lock.name, &keys);
    let arguments = [
        hold.owner.as_str().into(),
        hold.request.into(),
        hold.token.into(),
        sees_all(inner),
        CLIENT_CHANNEL_PREFIX.into(),
        keys.lock().into(),
        again[0],
        again[1],
        again[2],
        again[3],
        keys.channel().into(),
        other_line,
        other_times,
    ];
    let reply = run(&inner.servers, &Call::new(&scripts::HAND_OFF_RELEASE, &keys, &arguments))?;
    let row = Row::of(&reply)?;
    resume(inner, hold.lock, &keys, &row);
    answers::released(&row)
}

/// The places have one time to live: that of their client.
pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let places: Vec<_> = places.collect();
    let ttl = places.iter().map(|(place, _)| place.ttl).max().unwrap_or_default();
    let keys = inner.keys(lock)?;
    let [other_line, other_times] = inner.two_lines.keys(&lock.name, &keys);
    let mut arguments = vec![
        millis(ttl).into(),
        sees_all(inner),
        CLIENT_CHANNEL_PREFIX.into(),
        keys.lock().into(),
        places.first().map_or(flag(false), |(place, _)| is_cut_off(inner, place)), // all are of one client
        keys.channel().into(),
        other_line,
        other_times,
    ];
    for (place, lease) in places {
        let (owner, request) = (place.owner.as_str().into(), place.request.into());
        arguments.extend_from_slice(&[owner, request, millis(lease).into(), place.ticket.into()]);
    }
    Ok(Call::new(&scripts::HAND_OFF_RENEW, &keys, &arguments))
}

/// Who makes a request leave the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Waiter,
    Operator,
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>, by: By) -> Result<Withdrawn, BackendError> {
    let keys = inner.keys(place.lock)?;
    let call = leave(inner, place.lock, &keys, [place.owner.as_str().into(), place.request.into()], by);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    resume(inner, place.lock, &keys, &row);
    answers::withdrawn(&row)
}

fn leave(inner: &Inner, lock: &LockId, keys: &Arc<Keys>, who: [Argument<'_>; 2], by: By) -> Call {
    let [other_line, other_times] = inner.two_lines.keys(&lock.name, keys);
    let arguments = [
        who[0],
        who[1],
        sees_all(inner),
        CLIENT_CHANNEL_PREFIX.into(),
        keys.lock().into(),
        flag(by == By::Operator),
        keys.channel().into(),
        other_line,
        other_times,
    ];
    Call::new(&scripts::HAND_OFF_WITHDRAW, keys, &arguments)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let keys = inner.keys(lock)?;
    let [other_line, other_times] = inner.two_lines.keys(&lock.name, &keys);
    let arguments = [
        sees_all(inner),
        CLIENT_CHANNEL_PREFIX.into(),
        keys.lock().into(),
        keys.channel().into(),
        other_line,
        other_times,
    ];
    let reply = run(&inner.servers, &Call::new(&scripts::HAND_OFF_FORCE_RELEASE, &keys, &arguments))?;
    let row = Row::of(&reply)?;
    resume(inner, lock, &keys, &row);
    answers::force_released(&row)
}
