//! The Redis backend: each method of the trait is a few keys, one script, one reply.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Clock};

use crate::disciplines::hand_off::{self, By};
use crate::disciplines::{hold, inspect, plain, redisson};
use crate::inner::{RedisBackend, Rules};

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

    /// In few round trips to each server: a script renews up to a hundred holds, or all places of a lock.
    fn renew(&self, _client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers = self.0.renew(items);
        let answered = items.iter().zip(&answers).find_map(|(item, answer)| match (item, answer) {
            (Renew::Place { place, .. }, Ok(_)) => Some(place),
            _ => None,
        });
        if let Some(place) = answered {
            self.0.wake_ups.heartbeat_answered(place); // all of them are of one client
        }
        let mut unconfirmed = None;
        for (item, answer) in items.iter().zip(&mut answers) {
            let (Renew::Place { place, .. }, Ok(Renewal::Granted { token, lease })) = (item, &*answer) else {
                continue;
            };
            // One vain wait a round: the other grants are confirmed in the next one.
            let confirmed = unconfirmed.clone().map_or_else(|| self.confirm(place, *token, *lease), Err);
            match confirmed {
                Ok(()) => self.0.wake_ups.stop_listening(place),
                Err(error) => {
                    unconfirmed = Some(error.clone());
                    *answer = Err(error);
                }
            }
        }
        answers
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
