//! The calls in a history: who asked when, with which place, got which token, and believed in its hold until when.

use super::super::{Event, What};
use std::collections::BTreeMap;

/// One call that asks for the lock, and the hold that came of it. All times are those of the history.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The caller, for sentences.
    pub(super) name: String,
    /// The number of the caller.
    pub(super) caller: usize,
    /// When the call began. Its request was sent later.
    pub(super) asked: u64,
    limit: Option<u64>,
    /// The place in the queue, if the store answered that there is one.
    pub(super) place: Option<Place>,
    /// When the call had returned with the lock, and the token.
    pub(super) granted: Option<(u64, u64)>,
    /// The earliest time at which a request without a grant can have left the queue.
    pub(super) leaves: u64,
    /// The release of the hold, if it was tried.
    pub(super) release: Option<Release>,
    /// The time up to which the holder worked, if known.
    pub(super) believed: Option<u64>,
    /// The answered heartbeats.
    pub(super) heartbeats: Vec<Heartbeat>,
}

/// A heartbeat that the store accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    /// When it was sent.
    pub(super) sent: u64,
    /// Of the hold, or of the place.
    pub(super) of_hold: bool,
}

/// A place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// When the answer was there. The place was taken earlier.
    pub(super) seen: u64,
    /// The ticket, if the discipline has tickets.
    pub(super) ticket: Option<u64>,
}

/// A release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    /// When the call began.
    pub(super) from: u64,
    /// When it had returned without an error.
    pub(super) until: Option<u64>,
}

/// The calls of a lock in the order of their beginnings. `events` is sorted.
///
/// A killed caller needs no event: its call or its hold just has no end.
pub(super) fn calls(events: &[Event], lock: &str) -> Result<Vec<Call>, String> {
    let mut calls: Vec<Call> = Vec::new();
    let mut callers: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    // The current call of each caller.
    let mut open: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for event in events.iter().filter(|event| event.lock == lock) {
        let (at, me) = (event.at, (event.pid, event.who.as_str()));
        if let What::Ask { limit } = event.what {
            let (number, limit) = (callers.len(), limit.map(|ms| ms * 1_000_000));
            open.insert(me, calls.len());
            calls.push(Call::new(event, *callers.entry(me).or_insert(number), limit));
            continue;
        }
        let current = open.get(&me).copied();
        let is_waiting = current.is_some_and(|number| calls[number].granted.is_none());
        if let (What::Granted { token }, false) = (event.what, is_waiting) {
            let name = name_of(event);
            return Err(format!(
                "{name} got it at {at} ns (token {token}), and its request was over or never made"
            ));
        }
        let Some(number) = current else { continue };
        let call = &mut calls[number];
        match event.what {
            What::InQueue { ticket } if is_waiting => {
                let is_new = call.place.is_some_and(|place| place.ticket != ticket);
                if is_new {
                    // The first request of the call is over, and the call has made another one.
                    let asked = call.place.map_or(at, |place| place.seen);
                    let again = Call { asked, heartbeats: Vec::new(), ..call.clone() };
                    open.insert(me, calls.len());
                    calls.push(Call { place: Some(Place { seen: at, ticket }), leaves: at, ..again });
                } else if call.place.is_none() {
                    (call.place, call.leaves) = (Some(Place { seen: at, ticket }), at);
                }
            }
            What::Granted { token } => call.granted = Some((at, token)),
            What::PlaceKept { sent } if sent >= call.asked => {
                call.heartbeats.push(Heartbeat { sent, of_hold: false })
            }
            What::Renewed { sent } if sent >= call.asked => {
                call.heartbeats.push(Heartbeat { sent, of_hold: true })
            }
            What::Failed if is_waiting => {
                call.leaves = call.leaves.max(call.limit.map_or(0, |limit| call.asked + limit));
                open.remove(&me);
            }
            What::Unknown if is_waiting => drop(open.remove(&me)),
            What::Lost => call.believed = Some(at),
            What::Release => {
                call.release = Some(Release { from: at, until: None });
                call.believed.get_or_insert(at);
            }
            What::Released => {
                if let Some(release) = &mut call.release {
                    release.until = Some(at);
                }
                open.remove(&me);
            }
            _ => {}
        }
    }
    Ok(calls)
}

impl Call {
    fn new(event: &Event, caller: usize, limit: Option<u64>) -> Call {
        let (name, asked) = (name_of(event), event.at);
        let (place, granted, release, believed) = (None, None, None, None);
        Call {
            name,
            caller,
            asked,
            limit,
            place,
            granted,
            leaves: asked,
            release,
            believed,
            heartbeats: Vec::new(),
        }
    }

    /// When the last heartbeat was sent that found the request in the queue. It was granted the lock later.
    pub(super) fn last_kept(&self) -> u64 {
        let places = self.heartbeats.iter().filter(|heartbeat| !heartbeat.of_hold);
        places.map(|heartbeat| heartbeat.sent).max().unwrap_or(0)
    }

    /// The token, 0 without a grant.
    pub(super) fn token(&self) -> u64 {
        self.granted.map_or(0, |(_, token)| token)
    }
}

fn name_of(event: &Event) -> String {
    format!("process {} `{}`", event.pid, event.who)
}
