//! The Redis backend: each method of the trait is a few keys, one script, one reply.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Clock, FencingToken};
use redis::Value;

use crate::disciplines::hand_off::{self, By};
use crate::disciplines::{self, hold, inspect, plain, redisson};
use crate::inner::{RedisBackend, Rules};
use crate::net::topology::Order;
use crate::reply::missing;
use crate::run::{Call, run, run_all};

impl Backend for RedisBackend {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let call = disciplines::acquire(&self.0, ask)?;
        self.acquired(ask, &call, run(&self.0.servers, &call)?, &mut None)
    }

    fn acquire_all(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let mut vain = None;
        let answer = |ask: &_, call: &_, reply| self.acquired(ask, call, reply, &mut vain);
        self.ask_all(asks, |ask| disciplines::acquire(&self.0, ask), answer)
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
        let mut vain = None;
        for (item, answer) in items.iter().zip(&mut answers) {
            let (Renew::Place { place, .. }, Ok(Renewal::Granted { token, lease })) = (item, &*answer) else {
                continue;
            };
            match self.confirm_unless(&mut vain, place, *token, *lease) {
                Ok(()) => self.0.wake_ups.stop_listening(place),
                Err(error) => *answer = Err(error),
            }
        }
        answers
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        let reply = run(&self.0.servers, &disciplines::withdraw(&self.0, place, By::Waiter)?)?;
        self.withdrawn(place, &reply, &mut None)
    }

    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        let mut vain = None;
        let answer = |place: &_, _: &_, reply| self.withdrawn(place, &reply, &mut vain);
        self.ask_all(places, |place| disciplines::withdraw(&self.0, place, By::Waiter), answer)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        let reply = run(&self.0.servers, &disciplines::withdraw(&self.0, place, By::Operator)?)?;
        disciplines::withdrawn(&self.0, place, &reply)
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

    /// With [`RedisBuilder::durable`](crate::RedisBuilder::durable), the trust.
    fn longest_lease(&self) -> Option<Duration> {
        self.0.settings.durability.map(|durability| durability.longest_lease())
    }
}

impl RedisBackend {
    fn acquired(
        &self,
        ask: &Acquire<'_>,
        call: &Call,
        reply: Value,
        vain: &mut Option<BackendError>,
    ) -> Result<Acquired, BackendError> {
        let answer = disciplines::acquired(&self.0, ask, call, reply)?;
        if let Acquired::Granted { token, lease } = answer {
            self.confirm_unless(vain, &ask.place, token, lease)?;
        }
        Ok(answer)
    }

    fn withdrawn(
        &self,
        place: &Place<'_>,
        reply: &Value,
        vain: &mut Option<BackendError>,
    ) -> Result<Withdrawn, BackendError> {
        let answer = disciplines::withdrawn(&self.0, place, reply)?;
        self.0.wake_ups.stop_listening(place);
        if let Withdrawn::WasGranted { token, lease } = answer {
            self.confirm_unless(vain, place, token, lease)?;
        }
        Ok(answer)
    }

    /// Confirms a grant, unless another one of the same call waited in `vain`: one such wait a call is enough, and the others
    /// are confirmed by a repeat.
    fn confirm_unless(
        &self,
        vain: &mut Option<BackendError>,
        place: &Place<'_>,
        token: FencingToken,
        lease: Duration,
    ) -> Result<(), BackendError> {
        let confirmed = vain.clone().map_or_else(|| self.confirm(place, token, lease), Err);
        *vain = confirmed.as_ref().err().cloned();
        confirmed
    }

    /// One round trip to each server, one server after the other. Each question has an answer of its own.
    fn ask_all<Q, A>(
        &self,
        questions: &[Q],
        call: impl Fn(&Q) -> Result<Call, BackendError>,
        mut answer: impl FnMut(&Q, &Call, Value) -> Result<A, BackendError>,
    ) -> Vec<Result<A, BackendError>> {
        let calls: Vec<_> = questions.iter().map(call).collect();
        let sent: Vec<&Call> = calls.iter().flatten().collect();
        // A call that is alone says more of its errors.
        let replies = match sent[..] {
            [one] => vec![run(&self.0.servers, one)],
            _ => {
                let replies = run_all(&self.0.servers, &sent, Order::InTurn).into_iter();
                replies.map(|reply| reply.map_err(|failure| failure.error)).collect()
            }
        };
        let mut replies = replies.into_iter();
        let answer = |(question, call): (&Q, &Result<Call, BackendError>)| {
            let call = call.as_ref().map_err(BackendError::clone)?;
            answer(question, call, replies.next().unwrap_or_else(|| Err(missing()))?)
        };
        questions.iter().zip(&calls).map(answer).collect()
    }
}
