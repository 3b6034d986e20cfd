//! The oracle for calls: each ends in time.

use std::sync::Arc;
use std::time::Duration;

use fairlock::CancelToken;

use crate::life::Life;
use crate::look::{BUSY, RETRY, SLACK};
use crate::world::{Promise, World, locked};

/// A call that an actor is in.
#[derive(Clone, Debug)]
pub struct Call {
    pub what: String,
    pub life: Arc<Life>,
    pub began: Duration,
    pub limit: Limit,
    /// Of the token that it waits under: when that was cancelled is known by the actor's number.
    pub cancel: CancelToken,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As long as the server needs to answer.
    AtOnce,
    /// A timed wait.
    Timed(Duration),
    /// Until it is granted, or the server was silent for the outage limit.
    Patient,
    /// Until it is granted, however long the server is silent.
    Campaign,
    /// A drain, which waits so long for holders.
    Drain(Duration),
}

pub fn calls(world: &World) {
    let now = world.now();
    for (number, call) in locked(&world.calls).iter().enumerate() {
        let Some(call) = call else { continue };
        let cancelled = world.cancels.get(number).and_then(|cancel| {
            let cancel = locked(cancel);
            cancel.1.filter(|_| call.cancel.is_cancelled())
        });
        if let Some(why) = overdue(world, call, now, cancelled) {
            let what =
                format!("a{number} with {} is in {:?} since {:?}: {why}", call.life, call.what, call.began);
            world.found(Promise::Bound, what);
        }
    }
}

/// Why the call should have ended by now, if it should have.
fn overdue(world: &World, call: &Call, now: Duration, cancelled: Option<Duration>) -> Option<String> {
    let (client, settings) = (call.life.client, call.life.settings);
    let response = world.program.response;
    let slack = if world.store().is_some() { SLACK } else { BUSY };
    let before = call.began.saturating_sub(3 * RETRY);
    let calm =
        world.weather.is_calm(client, before, now, true) && world.weather.rows_are_free(None, before, now);
    let still = |from: Duration| world.weather.stood_still(client, from, now);
    let passed = |from: Duration, bound: Duration| now > from + bound + still(from);
    let ends = match (call.limit, calm) {
        (Limit::AtOnce, true) => Some(slack),
        (Limit::AtOnce, false) => Some(settings.outage_limit + 4 * response + 2 * RETRY + slack),
        (Limit::Timed(time), true) => Some(time + slack),
        (Limit::Timed(time), false) => Some(time + 3 * response + 2 * RETRY + slack),
        (Limit::Patient | Limit::Campaign | Limit::Drain(_), _) => None,
    };
    if let Some(bound) = ends.filter(|bound| passed(call.began, *bound)) {
        return Some(format!("it should take {bound:?} at the most"));
    }
    let ended = if calm { slack } else { 4 * response + 2 * RETRY + slack };
    if let Some(at) = cancelled.filter(|at| passed((*at).max(call.began), ended)) {
        return Some(format!("it was cancelled at {at:?}"));
    }
    let waits = if let Limit::Drain(at_most) = call.limit { at_most } else { Duration::ZERO };
    let shutdown =
        locked(&call.life.fate).shutdown.as_ref().map(|shutdown| shutdown.began.max(call.began) + waits);
    let settled = if calm { slack } else { settings.outage_limit + 4 * response + 2 * RETRY + slack };
    if let Some(at) = shutdown.filter(|at| passed((*at).max(call.began), settled)) {
        return Some(format!("its client is being shut down since {at:?}"));
    }
    if call.limit != Limit::Patient {
        return None;
    }
    let silent = world.weather.silent_since(client, now)?.max(call.began);
    let given_up = settings.outage_limit + 3 * response + 2 * RETRY + slack;
    passed(silent, given_up).then(|| format!("the server is silent since {silent:?}"))
}
