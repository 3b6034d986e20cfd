//! The Redis backend: each method of the trait is a few keys, one script, one reply.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, ForceReleased, Hold, HoldCountSet, LockId, LockState, Place,
    Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Clock, LockKind};
use redis::Value;

use crate::disciplines::line::{self, By};
use crate::disciplines::{self, hold, inspect, plain, redisson};
use crate::inner::{RedisBackend, Rules};
use crate::net::commands::attempt_ttl;
use crate::net::topology::Order;
use crate::reply::missing;
use crate::run::{Call, run, run_all};
use crate::settings::Discipline;

impl Backend for RedisBackend {
    fn acquire(&self, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        let call = disciplines::acquire(&self.0, ask)?;
        disciplines::acquired(&self.0, ask, &call, run(&self.0.servers, &call)?)
    }

    fn acquire_all(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        let answer = |ask: &_, call: &_, reply| disciplines::acquired(&self.0, ask, call, reply);
        self.ask_all(asks, |ask| disciplines::acquire(&self.0, ask), answer)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        match self.0.rules(hold.lock) {
            // The client counts, and the next renewal informs the server.
            Rules::Line => Ok(HoldCountSet::Set),
            Rules::Redisson | Rules::Plain => hold::set_hold_count(&self.0, hold, holds),
        }
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        match self.0.rules(hold.lock) {
            Rules::Line => line::release(&self.0, hold),
            Rules::Redisson => redisson::release(&self.0, hold),
            Rules::Plain => plain::release(&self.0, hold),
        }
    }

    /// In few round trips to each server: a script renews up to a hundred holds, or all places of a lock.
    fn renew(&self, _client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let answers = self.0.renew(items);
        let answered = items.iter().zip(&answers).find_map(|(item, answer)| match (item, answer) {
            (Renew::Place { place, .. }, Ok(_)) => Some(place),
            _ => None,
        });
        if let Some(place) = answered {
            self.0.wake_ups.heartbeat_answered(place); // all of them are of one client
        }
        for (item, answer) in items.iter().zip(&answers) {
            if let (Renew::Place { place, .. }, Ok(Renewal::Granted { .. })) = (item, answer) {
                self.0.wake_ups.stop_listening(place);
            }
        }
        answers
    }

    fn withdraw(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        let reply = run(&self.0.servers, &disciplines::withdraw(&self.0, place, By::Waiter)?)?;
        self.withdrawn(place, &reply)
    }

    fn withdraw_all(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        let answer = |place: &_, _: &_, reply| self.withdrawn(place, &reply);
        self.ask_all(places, |place| disciplines::withdraw(&self.0, place, By::Waiter), answer)
    }

    fn kick(&self, place: &Place<'_>) -> Result<Withdrawn, BackendError> {
        let reply = run(&self.0.servers, &disciplines::withdraw(&self.0, place, By::Operator)?)?;
        disciplines::withdrawn(&self.0, place, &reply)
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        match self.0.rules(lock) {
            Rules::Line => line::force_release(&self.0, lock, None),
            Rules::Redisson => redisson::force_release(&self.0, lock),
            Rules::Plain => plain::force_release(&self.0, lock),
        }
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        match self.0.rules(hold.lock) {
            Rules::Line => line::force_release(&self.0, hold.lock, Some(hold)),
            // The holder hears of it with its next renewal.
            Rules::Redisson | Rules::Plain => self.release(hold).map(ForceReleased::from),
        }
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        inspect::inspect(&self.0, self.0.rules_of_line(lock), lock, part)
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        self.0.wake_ups.subscribe(client, sink)
    }

    fn reconnects(&self) -> u64 {
        self.0.pools.reconnects()
    }

    /// Several holders by the hand-off.
    fn keeps(&self, kind: LockKind) -> bool {
        !kind.is_shared() || self.0.settings.discipline == Discipline::HandOff
    }

    /// The server's own clock: it runs as the system's does.
    fn store_clock(&self) -> Option<Clock> {
        Some(Clock::system())
    }

    fn response_timeout(&self) -> Option<Duration> {
        Some(self.0.settings.timeouts.response)
    }

    /// The response time-out, 5 s, and one more for clocks that drift. The server is told its own time until which it may, as far as
    /// the client knows that clock.
    fn attempt_ttl(&self) -> Option<Duration> {
        Some(attempt_ttl(self.0.settings.timeouts.response))
    }

    /// In Redisson's line.
    fn keeps_place_by_owner(&self, lock: &LockId) -> bool {
        self.0.rules(lock) == Rules::Redisson
    }

    /// With [`RedisBuilder::durable`](crate::RedisBuilder::durable), see
    /// [`Durability::longest_lease`](crate::Durability::longest_lease).
    fn longest_lease(&self) -> Option<Duration> {
        self.0.settings.durability.map(|durability| durability.longest_lease())
    }
}

impl RedisBackend {
    fn withdrawn(&self, place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
        let answer = disciplines::withdrawn(&self.0, place, reply)?;
        self.0.wake_ups.stop_listening(place);
        Ok(answer)
    }

    /// One round trip to each server, one server after the other. Each question has an answer of its own.
    fn ask_all<Q, A>(
        &self,
        questions: &[Q],
        call: impl Fn(&Q) -> Result<Call, BackendError>,
        answer: impl Fn(&Q, &Call, Value) -> Result<A, BackendError>,
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
