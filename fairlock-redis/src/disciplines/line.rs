//! Discipline `HandOff`: a script that frees units grants the lock to all at the head of the line that fit then, and tells them so.
//! A fair lock has one unit: the releasing script itself makes the next waiter the holder.
//!
//! One trip from release to the next holder, and no work that grows with the line. Each client has one channel for all
//! its messages, so waiting needs no subscription of its own.

use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, Place, Released, Wait, Withdrawn,
};
use redis::Value;

use super::answers;
use crate::inner::Inner;
use crate::reply::{Row, number, rank, recheck_in, token, unintelligible};
use crate::resp::{Argument, millis};
use crate::run::{Call, run};
use crate::scripts::{self, Script};
use crate::two_lines::OtherLine;

/// What the scripts have to know, as letters (see `scripts/lib/line.lua`).
fn options(inner: &Inner, lock: &LockId, place: Option<&Place<'_>>) -> Argument<'static> {
    const LETTERS: [&str; 16] =
        ["", "w", "s", "ws", "r", "wr", "sr", "wsr", "d", "wd", "sd", "wsd", "rd", "wrd", "srd", "wsrd"];
    let set = [
        place.is_some_and(|place| place.wait != Wait::No),
        inner.servers.sees_all_subscribers(),
        // Redisson has no line for a lock of several units.
        lock.kind.capacity() == 1 && inner.two_lines.may_look(&lock.name),
        // Waiters of a client that is cut off count as present all the same.
        place.is_some_and(|place| inner.wake_ups.is_cut_off(place)),
    ];
    let index = set.iter().rev().fold(0, |index, is_set| 2 * index + usize::from(*is_set));
    LETTERS[index].into()
}

fn capacity(lock: &LockId) -> Argument<'static> {
    Argument::Number(lock.kind.capacity().into())
}

fn call(
    inner: &Inner,
    script: &'static Script,
    lock: &LockId,
    arguments: &[Argument<'_>],
) -> Result<Call, BackendError> {
    Ok(Call::durable(script, inner.settings.durability, &inner.keys(lock)?, arguments))
}

/// Goes on where a script has said that there is more to do: units would be free until the next heartbeat. (A waiter needs no help:
/// it is told to ask again at once.)
///
/// What the caller asked for is done, so no failure in here changes its answer: the heartbeats do the rest then. The loop
/// ends where the line does, and starts no further script after one response time-out.
fn resume(inner: &Inner, lock: &LockId, mut has_more: bool) {
    let until = Instant::now() + inner.settings.timeouts.response;
    while has_more && Instant::now() < until {
        // Without a member none leaves, and the script only hands on what is free.
        let reply = leave(inner, lock, "".into(), By::Waiter).and_then(|call| run(&inner.servers, &call));
        has_more = reply
            .is_ok_and(|reply| Row::of(&reply).and_then(|row| row.number(0)).is_ok_and(|more| more == 1));
    }
}

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Call, BackendError> {
    let (place, lock) = (&ask.place, ask.place.lock);
    let arguments = [
        Argument::Member(place),
        millis(ask.lease).into(),
        millis(place.ttl).into(),
        options(inner, lock, Some(place)),
        ask.label.into(),
        u64::from(place.takes).into(),
        capacity(lock),
        Argument::BeginBy,
        place.ticket.into(),
    ];
    // The ticket comes last, and only if there is one.
    let arguments = if place.ticket == 0 { &arguments[..8] } else { &arguments };
    if let Some(durability) = &inner.settings.durability {
        durability.check_lease(ask.lease)?;
    }
    call(inner, &scripts::LINE_ACQUIRE, lock, arguments)
}

/// The answer to this call, of which `reply` is the first reply.
pub(crate) fn acquired(
    inner: &Inner,
    ask: &Acquire<'_>,
    call: &Call,
    mut reply: Value,
) -> Result<Acquired, BackendError> {
    let mut until = None;
    loop {
        let (answer, has_more) = answer(inner, ask, &reply)?;
        // An attempt that does not wait leaves nothing behind, so it is repeated as a whole.
        if has_more
            && Instant::now()
                < *until.get_or_insert_with(|| Instant::now() + inner.settings.timeouts.response)
        {
            reply = run(&inner.servers, call)?;
            continue;
        }
        return Ok(answer);
    }
}

/// What one reply means, and whether it is busy only because the script has reached a limit.
fn answer(inner: &Inner, ask: &Acquire<'_>, reply: &Value) -> Result<(Acquired, bool), BackendError> {
    let seen = |other| inner.two_lines.seen(&ask.place.lock.name, OtherLine::read(other));
    match reply {
        Value::Int(_) => Ok((Acquired::Granted { token: token(reply)?, lease: ask.lease }, false)),
        Value::Array(numbers) if matches!(numbers.first(), Some(Value::Int(_))) => {
            let [at, recheck, ticket, latest, other] = &numbers[..] else {
                return Err(unintelligible(reply));
            };
            seen(number(other)?);
            let (at, recheck_in) = (rank(at)?, recheck_in(recheck)?);
            Ok((
                Acquired::Queued { rank: at, recheck_in, ticket: rank(ticket)?, latest: rank(latest)? },
                false,
            ))
        }
        _ => {
            let row = Row::of(reply)?;
            match row.word {
                "granted" => seen(row.number_if_any(2)?),
                "busy" => return Ok((answers::acquired(&row)?, row.number_if_any(1)? == 1)),
                _ => {}
            }
            Ok((answers::acquired(&row)?, false))
        }
    }
}

pub(crate) fn release(inner: &Inner, hold: &Hold<'_>) -> Result<Released, BackendError> {
    let arguments = [Argument::Hold(hold), options(inner, hold.lock, None)];
    let reply = run(&inner.servers, &call(inner, &scripts::LINE_RELEASE, hold.lock, &arguments)?)?;
    let (answer, more) = match &reply {
        Value::Int(said @ 0..=3) => {
            inner.two_lines.seen(&hold.lock.name, OtherLine::read(said & 2));
            (Released::Released, said & 1)
        }
        _ => {
            let row = Row::of(&reply)?;
            (answers::released(&row)?, row.number_if_any(0)?)
        }
    };
    resume(inner, hold.lock, more == 1);
    Ok(answer)
}

/// The places have one time to live: that of their client.
pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let places: Vec<_> = places.collect();
    let ttl = places.iter().map(|(place, _)| place.ttl).max().unwrap_or_default();
    // All places are of one client.
    let options = options(inner, lock, places.first().map(|(place, _)| *place));
    let mut arguments = vec![millis(ttl).into(), options, capacity(lock), Argument::BeginBy];
    for (place, lease) in places {
        let takes = u64::from(place.takes).into();
        arguments.extend([Argument::Member(place), millis(lease).into(), place.ticket.into(), takes]);
    }
    call(inner, &scripts::LINE_RENEW, lock, &arguments)
}

/// Who makes a request leave the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Waiter,
    Operator,
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>, by: By) -> Result<Call, BackendError> {
    leave(inner, place.lock, Argument::Member(place), by)
}

pub(crate) fn withdrawn(inner: &Inner, place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
    let row = Row::of(reply)?;
    let answer = answers::withdrawn(&row)?;
    resume(inner, place.lock, answer == Withdrawn::Left && row.number_if_any(0)? == 1);
    Ok(answer)
}

fn leave(inner: &Inner, lock: &LockId, member: Argument<'_>, by: By) -> Result<Call, BackendError> {
    let is_kick = u64::from(by == By::Operator).into();
    call(inner, &scripts::LINE_WITHDRAW, lock, &[member, options(inner, lock, None), is_kick])
}

/// Takes the lock from all its holders, or only this hold. A script looks at some hundred holders: the next one goes on behind them,
/// and takes nothing that was granted meanwhile.
pub(crate) fn force_release(
    inner: &Inner,
    lock: &LockId,
    only: Option<&Hold<'_>>,
) -> Result<ForceReleased, BackendError> {
    let named = only.map_or("".into(), Argument::Hold);
    let mut arguments = vec![options(inner, lock, None), capacity(lock), Argument::BeginBy, named];
    let mut answer = ForceReleased::NotHeld;
    loop {
        let reply = run(&inner.servers, &call(inner, &scripts::LINE_FORCE_RELEASE, lock, &arguments)?)?;
        let row = Row::of(&reply)?;
        if answers::force_released(&row)? == ForceReleased::Taken {
            answer = ForceReleased::Taken;
        }
        let more = row.number_if_any(0)? == 1;
        let [last_token, end] = [1, 2].map(|index| row.rank_if_any(index));
        let (Some(last_token), Some(end)) = (last_token?, end?) else {
            resume(inner, lock, more);
            return Ok(answer);
        };
        arguments.truncate(4);
        arguments.extend([Argument::Number(last_token), Argument::Number(end)]);
    }
}
