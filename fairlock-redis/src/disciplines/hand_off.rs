//! Discipline `HandOff`: the releasing script itself makes the next waiter the holder, and tells it so.
//!
//! One trip from release to the next holder, and no work that grows with the line. Each client has one channel for all
//! its messages, so waiting needs no subscription of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};
use redis::Value;

use super::answers;
use crate::inner::Inner;
use crate::keys::Keys;
use crate::reply::Row;
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts;
use crate::two_lines::OtherLine;

/// What the scripts have to know, as letters (see `scripts/lib/places.lua`).
pub(super) fn options(inner: &Inner, lock: &LockId, place: Option<&Place<'_>>) -> Argument<'static> {
    const LETTERS: [&str; 16] =
        ["", "w", "s", "ws", "r", "wr", "sr", "wsr", "d", "wd", "sd", "wsd", "rd", "wrd", "srd", "wsrd"];
    let set = [
        place.is_some_and(|place| place.wait != Wait::No),
        inner.servers.sees_all_subscribers(),
        inner.two_lines.may_look(&lock.name),
        // Waiters of a client that is cut off count as present all the same.
        place.is_some_and(|place| inner.wake_ups.is_cut_off(place)),
    ];
    let index = set.iter().rev().fold(0, |index, is_set| 2 * index + usize::from(*is_set));
    LETTERS[index].into()
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
pub(super) fn resume(inner: &Inner, row: &Row<'_>, go_on: impl Fn() -> Result<Call, BackendError>) {
    if !has_stopped(row) {
        return;
    }
    let (mut stopped, until) = (true, Instant::now() + inner.settings.timeouts.response);
    while stopped && Instant::now() < until {
        // Without a member none leaves, and the script only hands a free lock on.
        let reply = go_on().and_then(|call| run(&inner.servers, &call));
        stopped = reply.is_ok_and(|reply| Row::of(&reply).is_ok_and(|row| has_stopped(&row)));
    }
}

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let (place, lock) = (&ask.place, ask.place.lock);
    let keys = inner.keys(lock)?;
    let arguments = [
        Argument::Member(place),
        millis(ask.lease).into(),
        millis(place.ttl).into(),
        options(inner, lock, Some(place)),
        ask.label.into(),
        Argument::BeginBy,
        place.ticket.into(),
    ];
    // The ticket comes last, and only if there is one.
    let arguments = if place.ticket == 0 { &arguments[..6] } else { &arguments };
    if let Some(durability) = &inner.settings.durability {
        durability.check_lease(ask.lease)?;
    }
    Ok(Call::durable(&scripts::HAND_OFF_ACQUIRE, inner.settings.durability, &keys, arguments))
}

/// The answer to this call, of which `reply` is the first reply.
pub(crate) fn acquired(
    inner: &Inner,
    ask: &Acquire<'_>,
    call: &Call,
    reply: Value,
) -> Result<Acquired, BackendError> {
    acquired_by(inner, call, reply, |row| {
        let other_line = match row.word {
            "queued" => row.number(4)?,
            "granted" => row.number_if_any(2)?,
            _ => 0,
        };
        inner.two_lines.seen(&ask.place.lock.name, OtherLine::read(other_line));
        answers::acquired(row)
    })
}

/// The same with this meaning of the last reply.
pub(super) fn acquired_by(
    inner: &Inner,
    call: &Call,
    mut reply: Value,
    meaning: impl Fn(&Row<'_>) -> Result<Acquired, BackendError>,
) -> Result<Acquired, BackendError> {
    let mut until = None;
    loop {
        let row = Row::of(&reply)?;
        // An attempt that does not wait leaves nothing behind, so it is repeated as a whole.
        if has_stopped(&row)
            && Instant::now()
                < *until.get_or_insert_with(|| Instant::now() + inner.settings.timeouts.response)
        {
            reply = run(&inner.servers, call)?;
            continue;
        }
        return meaning(&row);
    }
}

pub(crate) fn release(inner: &Inner, hold: &Hold<'_>) -> Result<Released, BackendError> {
    let keys = inner.keys(hold.lock)?;
    let arguments = [Argument::Hold(hold), options(inner, hold.lock, None)];
    let call = Call::durable(&scripts::HAND_OFF_RELEASE, inner.settings.durability, &keys, &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    if row.word == "released" {
        inner.two_lines.seen(&hold.lock.name, OtherLine::read(row.number_if_any(1)?));
    }
    resume(inner, &row, || Ok(leave(inner, hold.lock, &keys, "".into(), By::Waiter)));
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
    // All places are of one client.
    let options = options(inner, lock, places.first().map(|(place, _)| *place));
    let mut arguments = vec![millis(ttl).into(), options, Argument::BeginBy];
    for (place, lease) in places {
        arguments.extend_from_slice(&[Argument::Member(place), millis(lease).into(), place.ticket.into()]);
    }
    Ok(Call::durable(&scripts::HAND_OFF_RENEW, inner.settings.durability, &keys, &arguments))
}

/// Who makes a request leave the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Waiter,
    Operator,
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>, by: By) -> Result<Call, BackendError> {
    let keys = inner.keys(place.lock)?;
    Ok(leave(inner, place.lock, &keys, Argument::Member(place), by))
}

pub(crate) fn withdrawn(inner: &Inner, place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
    let row = Row::of(reply)?;
    let keys = inner.keys(place.lock)?;
    resume(inner, &row, || Ok(leave(inner, place.lock, &keys, "".into(), By::Waiter)));
    answers::withdrawn(&row)
}

fn leave(inner: &Inner, lock: &LockId, keys: &Arc<Keys>, member: Argument<'_>, by: By) -> Call {
    let is_kick = u64::from(by == By::Operator).into();
    let arguments = [member, options(inner, lock, None), is_kick];
    Call::durable(&scripts::HAND_OFF_WITHDRAW, inner.settings.durability, keys, &arguments)
}

/// Takes the lock from its holder, or only if that is this one.
pub(crate) fn force_release(
    inner: &Inner,
    lock: &LockId,
    only: Option<&Hold<'_>>,
) -> Result<ForceReleased, BackendError> {
    let keys = inner.keys(lock)?;
    let (options, durability) = (options(inner, lock, None), inner.settings.durability);
    let mut arguments = vec![options, Argument::BeginBy];
    arguments.extend(only.map(Argument::Hold));
    let call = Call::durable(&scripts::HAND_OFF_FORCE_RELEASE, durability, &keys, &arguments);
    let reply = run(&inner.servers, &call)?;
    let row = Row::of(&reply)?;
    resume(inner, &row, || Ok(leave(inner, lock, &keys, "".into(), By::Waiter)));
    answers::force_released(&row)
}
