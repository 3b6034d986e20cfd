//! The Redis backend: each method of the trait is a few keys, one script, one reply.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Clock};

use crate::disciplines::hand_off::{self, By};
use crate::disciplines::{hold, inspect, plain, redisson, renewed_places};
use crate::inner::{RedisBackend, Rules};
use crate::reply::missing;
use crate::run::{Call, run_all};

/// The most places in one call, so that none keeps the server busy for long.
const MOST_PLACES: usize = 200;

impl Backend for RedisBackend {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let answer = match self.0.rules(ask.place.lock) {
            Rules::HandOff => hand_off::acquire(&self.0, ask),
            Rules::Redisson => redisson::acquire(&self.0, ask),
            Rules::Plain => plain::acquire(&self.0, ask),
        }?;
        if let Acquired::Granted { token, lease } = answer {
            self.confirm(&ask.place, token, lease)?;
        }
        Ok(answer)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        match self.0.rules(hold.lock) {
            // The client counts, and the next renewal informs the server.
            Rules::HandOff => Ok(HoldCountSet::Set),
            Rules::Redisson | Rules::Plain => hold::set_hold_count(&self.0, hold, holds),
        }
    }

    fn release(&self, hold: &Hold<'_>, again: Option<&Acquire<'_>>) -> Result<Released, BackendError> {
        match self.0.rules(hold.lock) {
            Rules::HandOff => hand_off::release(&self.0, hold, again),
            Rules::Redisson => redisson::release(&self.0, hold, again),
            Rules::Plain => plain::release(&self.0, hold, again),
        }
    }

    /// One pipeline a server: a script for each hold, and one for all places of a lock.
    fn renew(&self, _client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers: Vec<Option<Result<Renewal, BackendError>>> = items.iter().map(|_| None).collect();
        let (mut calls, mut asked) = (Vec::new(), Vec::new());
        for (indices, call) in self.renewals(items) {
            match call {
                Ok(call) => {
                    calls.push(call);
                    asked.push(indices);
                }
                Err(error) => indices.into_iter().for_each(|at| answers[at] = Some(Err(error.clone()))),
            }
        }
        for (indices, reply) in asked.into_iter().zip(run_all(&self.0.servers, &calls)) {
            let rows = reply.and_then(|reply| match &items[indices[0]] {
                Renew::Hold { .. } => Ok(vec![hold::renewed(&reply)]),
                Renew::Place { .. } => renewed_places(&reply, indices.len()),
            });
            match rows {
                Ok(rows) => indices.into_iter().zip(rows).for_each(|(at, row)| answers[at] = Some(row)),
                Err(error) => indices.into_iter().for_each(|at| answers[at] = Some(Err(error.clone()))),
            }
        }
        let answered = items.iter().zip(&answers).find_map(|(item, answer)| match (item, answer) {
            (Renew::Place { place, .. }, Some(Ok(_))) => Some(place),
            _ => None,
        });
        if let Some(place) = answered {
            self.0.wake_ups.heartbeat_answered(place); // all of them are of one client
        }
        let mut unconfirmed = None;
        for (item, answer) in items.iter().zip(&mut answers) {
            let (Renew::Place { place, .. }, Some(Ok(Renewal::Granted { token, lease }))) = (item, &*answer)
            else {
                continue;
            };
            // One vain wait a round: the other grants are confirmed in the next one.
            let confirmed = unconfirmed.clone().map_or_else(|| self.confirm(place, *token, *lease), Err);
            match confirmed {
                Ok(()) => self.0.wake_ups.stop_listening(place),
                Err(error) => {
                    unconfirmed = Some(error.clone());
                    *answer = Some(Err(error));
                }
            }
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(missing()))).collect()
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        let withdrawn = match self.0.rules(place.lock) {
            Rules::HandOff => hand_off::withdraw(&self.0, place, By::Waiter),
            Rules::Redisson => redisson::withdraw(&self.0, place),
            Rules::Plain => plain::withdraw(&self.0, place),
        }?;
        self.0.wake_ups.stop_listening(place);
        if let Withdrawn::WasGranted { token, lease } = withdrawn {
            self.confirm(place, token, lease)?;
        }
        Ok(withdrawn)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        match self.0.rules(place.lock) {
            Rules::HandOff => hand_off::withdraw(&self.0, place, By::Operator),
            // Only the hand-off restores places, and has to be told of a kick.
            Rules::Redisson => redisson::withdraw(&self.0, place),
            Rules::Plain => plain::withdraw(&self.0, place),
        }
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        match self.0.rules(lock) {
            Rules::HandOff => hand_off::force_release(&self.0, lock),
            Rules::Redisson => redisson::force_release(&self.0, lock),
            Rules::Plain => plain::force_release(&self.0, lock),
        }
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        // A plain handle, too, shows the line of this backend's fair locks.
        inspect::inspect(&self.0, self.0.settings.discipline, lock, part)
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        self.0.wake_ups.subscribe(client, sink)
    }

    fn reconnects(&self) -> u64 {
        self.0.pools.reconnects()
    }

    /// The server's own clock: it runs as the system's does.
    fn store_clock(&self) -> Option<Clock> {
        Some(Clock::system())
    }

    fn response_timeout(&self) -> Option<Duration> {
        Some(self.0.settings.timeouts.response)
    }
}

impl RedisBackend {
    /// The scripts that renew these items, each with the indices of its items.
    fn renewals(&self, items: &[Renew<'_>]) -> Vec<(Vec<usize>, Result<Call, BackendError>)> {
        let mut calls = Vec::new();
        let mut places: HashMap<&LockId, Vec<usize>> = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            match item {
                Renew::Hold { hold, holds, lease } => {
                    calls.push((vec![at], hold::renew(&self.0, hold, *holds, *lease)));
                }
                Renew::Place { place, .. } => places.entry(place.lock).or_default().push(at),
            }
        }
        for (lock, mut waiting) in places {
            while !waiting.is_empty() {
                let rest = waiting.split_off(waiting.len().min(MOST_PLACES));
                let of_lock = waiting.iter().filter_map(|at| match &items[*at] {
                    Renew::Place { place, lease } => Some((place, *lease)),
                    Renew::Hold { .. } => None,
                });
                let call = match self.0.rules(lock) {
                    Rules::HandOff => hand_off::renew(&self.0, lock, of_lock),
                    Rules::Redisson => redisson::renew(&self.0, lock, of_lock),
                    Rules::Plain => plain::renew(&self.0, lock, of_lock),
                };
                calls.push((waiting, call));
                waiting = rest;
            }
        }
        calls
    }
}
