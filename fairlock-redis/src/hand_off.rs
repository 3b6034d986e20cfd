//! Discipline `HandOff`: the releasing script itself makes the next waiter the holder, and tells it so.
//!
//! One trip from release to the next holder, and no work that grows with the line. Every client has one channel for
//! all that it has to be told, so waiting needs no subscription of its own.

use std::ops::Range;
use std::time::{Duration, Instant};

use fairlock_core::OwnerId;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, LockId, LockState, Place, Released, RequestId,
    Wait, Waiter, Withdrawn,
};
use redis::Value;

use crate::answers;
use crate::backend::Inner;
use crate::ears::Hearing;
use crate::inspect::holder;
use crate::keys::{CLIENT_CHANNEL_PREFIX, Keys};
use crate::net::topology::Listeners;
use crate::reply::{Row, items, time, written};
use crate::run::{Call, run};
use crate::scripts::{self, Script};
use crate::text::{millis, rank_and_count, request, token};
use crate::two_lines::OtherLine;

/// What scripts are told about the server's view of who listens.
fn knows_who_listens(inner: &Inner) -> &'static str {
    match inner.servers.view_of_listeners() {
        Listeners::AllSeen => "1",
        Listeners::SomeUnseen => "0",
    }
}

/// What the scripts are told about the asker: one that knows that it is deaf is alive all the same.
fn is_deaf(inner: &Inner, place: &Place<'_>) -> &'static str {
    match inner.ears.hearing(place) {
        Hearing::Deaf => "1",
        Hearing::Hears => "0",
    }
}

fn call(script: &'static Script, lock: &LockId, arguments: &[&str]) -> Result<Call, BackendError> {
    let keys = Keys::of(lock)?;
    Ok(Call::new(script, &[&keys.lock, &keys.line, &keys.places, &keys.token], arguments))
}

/// Whether the lock is free only because one script may not look at the whole line: so many of the first were absent.
fn has_stopped(reply: &Value) -> bool {
    let Ok(row) = Row::of(reply) else { return false };
    let stopped = match row.word {
        "released" | "not_held" | "left" | "taken" => row.number(0),
        "busy" => row.number(1),
        _ => return false,
    };
    stopped.is_ok_and(|stopped| stopped == 1)
}

/// Goes on where the script that gave this answer has stopped. Nobody else looks before the next heartbeat. (A waiter needs
/// no help: it is told to ask again at once.)
///
/// What was asked for is done, so no failure in here changes the answer: the heartbeats do the rest then. It ends where the
/// line does, and begins with no further script after one response time-out.
fn go_on(inner: &Inner, lock: &LockId, reply: &Value) -> Result<(), BackendError> {
    let mut stopped = has_stopped(reply);
    let until = Instant::now() + inner.settings.timeouts.response;
    while stopped && Instant::now() < until {
        // Nobody leaves: what is left of the script is that it hands a free lock on.
        let reply = run(&inner.servers, &leave(inner, lock, "", "", By::Waiter)?);
        stopped = reply.is_ok_and(|reply| has_stopped(&reply));
    }
    Ok(())
}

pub(crate) fn acquire(inner: &Inner, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
    let place = &ask.place;
    let [plain_channel, other_line, other_times] = inner.two_lines.named(place.lock)?;
    let arguments = [
        place.owner.as_str(),
        &request(place.request),
        &millis(ask.lease),
        &millis(place.ttl),
        if place.wait == Wait::No { "once" } else { "wait" },
        ask.label,
        knows_who_listens(inner),
        CLIENT_CHANNEL_PREFIX,
        place.lock.name.as_str(),
        is_deaf(inner, place),
        &place.ticket.to_string(),
        &plain_channel,
        &other_line,
        &other_times,
    ];
    let ask = call(&scripts::HAND_OFF_ACQUIRE, place.lock, &arguments)?;
    let mut reply = run(&inner.servers, &ask)?;
    // One attempt leaves nothing behind, so it is repeated as a whole.
    let until = Instant::now() + inner.settings.timeouts.response;
    while has_stopped(&reply) && Instant::now() < until {
        reply = run(&inner.servers, &ask)?;
    }
    let row = Row::of(&reply)?;
    if row.word == "queued" {
        inner.two_lines.seen(place.lock, OtherLine::read(row.number(4)?));
    }
    answers::acquired(&reply)
}

pub(crate) fn release(
    inner: &Inner,
    hold: &Hold<'_>,
    again: Option<&Acquire<'_>>,
) -> Result<Released, BackendError> {
    let again = again.map_or_else(Default::default, |ask| {
        [request(ask.place.request), millis(ask.lease), millis(ask.place.ttl), ask.label.to_owned()]
    });
    let [plain_channel, other_line, other_times] = inner.two_lines.named(hold.lock)?;
    let arguments = [
        hold.owner.as_str(),
        &request(hold.request),
        &token(hold.token),
        knows_who_listens(inner),
        CLIENT_CHANNEL_PREFIX,
        hold.lock.name.as_str(),
        &again[0],
        &again[1],
        &again[2],
        &again[3],
        &plain_channel,
        &other_line,
        &other_times,
    ];
    let reply = run(&inner.servers, &call(&scripts::HAND_OFF_RELEASE, hold.lock, &arguments)?)?;
    go_on(inner, hold.lock, &reply)?;
    answers::released(&reply)
}

/// The places have one time to live: that of their client.
pub(crate) fn renew<'a>(
    inner: &Inner,
    lock: &LockId,
    places: impl Iterator<Item = (&'a Place<'a>, Duration)>,
) -> Result<Call, BackendError> {
    let (mut arguments, mut ttl, mut deaf) = (Vec::new(), Duration::ZERO, "0");
    for (place, lease) in places {
        if arguments.is_empty() {
            deaf = is_deaf(inner, place); // all of them are of one client
        }
        ttl = ttl.max(place.ttl);
        let ticket = place.ticket.to_string();
        arguments.extend([place.owner.to_string(), request(place.request), millis(lease), ticket]);
    }
    let ttl = millis(ttl);
    let [plain_channel, other_line, other_times] = inner.two_lines.named(lock)?;
    let head = [
        ttl.as_str(),
        knows_who_listens(inner),
        CLIENT_CHANNEL_PREFIX,
        lock.name.as_str(),
        deaf,
        &plain_channel,
        &other_line,
        &other_times,
    ];
    let arguments: Vec<&str> = head.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    call(&scripts::HAND_OFF_RENEW, lock, &arguments)
}

pub(crate) fn renew_hold(hold: &Hold<'_>, holds: u32, lease: Duration) -> Result<Call, BackendError> {
    let keys = Keys::of(hold.lock)?;
    let arguments =
        [hold.owner.as_str(), &request(hold.request), &token(hold.token), &holds.to_string(), &millis(lease)];
    Ok(Call::new(&scripts::HAND_OFF_RENEW_HOLD, &[&keys.lock], &arguments))
}

/// Who wants a place to be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Waiter,
    Operator,
}

pub(crate) fn withdraw(inner: &Inner, place: &Place<'_>, by: By) -> Result<Withdrawn, BackendError> {
    let call = leave(inner, place.lock, place.owner.as_str(), &request(place.request), by)?;
    let reply = run(&inner.servers, &call)?;
    go_on(inner, place.lock, &reply)?;
    answers::withdrawn(&reply)
}

fn leave(inner: &Inner, lock: &LockId, owner: &str, request: &str, by: By) -> Result<Call, BackendError> {
    let [plain_channel, other_line, other_times] = inner.two_lines.named(lock)?;
    let arguments = [
        owner,
        request,
        knows_who_listens(inner),
        CLIENT_CHANNEL_PREFIX,
        lock.name.as_str(),
        if by == By::Operator { "1" } else { "0" },
        &plain_channel,
        &other_line,
        &other_times,
    ];
    call(&scripts::HAND_OFF_WITHDRAW, lock, &arguments)
}

pub(crate) fn force_release(inner: &Inner, lock: &LockId) -> Result<ForceReleased, BackendError> {
    let [plain_channel, other_line, other_times] = inner.two_lines.named(lock)?;
    let arguments = [
        knows_who_listens(inner),
        CLIENT_CHANNEL_PREFIX,
        lock.name.as_str(),
        &plain_channel,
        &other_line,
        &other_times,
    ];
    let reply = run(&inner.servers, &call(&scripts::HAND_OFF_FORCE_RELEASE, lock, &arguments)?)?;
    go_on(inner, lock, &reply)?;
    answers::force_released(&reply)
}

pub(crate) fn inspect(inner: &Inner, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
    state(inner, &run(&inner.servers, &look(lock, part)?)?)
}

pub(crate) fn look(lock: &LockId, part: Range<u64>) -> Result<Call, BackendError> {
    let [from, many] = rank_and_count(&part);
    call(&scripts::HAND_OFF_INSPECT, lock, &[&from, &many])
}

pub(crate) fn state(inner: &Inner, reply: &Value) -> Result<LockState, BackendError> {
    let row = Row::of(reply)?;
    let mut state = LockState::default();
    state.holder = holder(inner, &row)?;
    state.line_length = row.rank(3)?;
    for place in items(row.at(4)?)?.chunks_exact(5) {
        let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
        waiter.request = u64::from_str_radix(&written(&place[1])?, 16).ok().map(RequestId::new);
        waiter.waiting = time(&place[2])?;
        waiter.place_left = time(&place[3])?;
        waiter.label = Some(written(&place[4])?.into_owned()).filter(|label| !label.is_empty());
        state.line.push(waiter);
    }
    Ok(state)
}
