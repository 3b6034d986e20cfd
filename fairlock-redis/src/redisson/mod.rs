//! Locks that are shared with Java's Redisson: discipline `Redisson` with its fair locks, and plain locks.
//!
//! Both have one holder under its owner's name, and their waiters listen on Redisson's channels.

mod channels;
mod fair;
mod plain;

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldKept, LockId, Place, RequestId, Wait,
};
use redis::Value;

pub(crate) use self::channels::Channels;
use self::channels::Subscribed;
pub(crate) use self::fair::Fair;
pub(crate) use self::plain::Plain;
use crate::rules::{By, Rules};
use crate::script::keys::Keys;
use crate::script::reply::{Row, missing};
use crate::script::scripts::Argument::{BeginBy, Channel, Number, Request, Text};
use crate::script::scripts::{Argument, at_least_millis, millis};
use crate::script::{Call, reply, scripts};
use crate::shared::Shared;

/// Locks of one kind.
pub(crate) struct Locks<K> {
    shared: Arc<Shared>,
    channels: Arc<Channels>,
    kind: K,
}

/// What fair and plain locks differ in: the queue, and channels.
pub(crate) trait Kind: Send + Sync {
    fn supports(&self, kind: LockKind) -> bool;

    /// How a request asks: `once` without a place.
    fn mode(&self, place: &Place<'_>) -> &'static str;

    /// How long a place lasts.
    fn time_of(&self, place: &Place<'_>) -> Duration;

    /// The channel on which this waiter is told to ask again.
    fn channel(&self, place: &Place<'_>, keys: &Keys) -> String;

    /// The answer to a request found the lock's queue damaged.
    fn warn_of(&self, _place: &Place<'_>, _answer: &Row<'_>, _shared: &Shared) -> Result<(), BackendError> {
        Ok(())
    }

    fn keeps_place_by_owner(&self) -> bool {
        false
    }
}

/// Names the hold in a script's arguments.
fn named<'a>(hold: &'a Hold<'_>) -> [Argument<'a>; 3] {
    [Text(hold.owner.as_str()), Request(hold.request), Number(hold.token.get())]
}

impl<K: Kind> Locks<K> {
    pub(crate) fn new(shared: &Arc<Shared>, channels: &Arc<Channels>, kind: K) -> Locks<K> {
        Locks { shared: Arc::clone(shared), channels: Arc::clone(channels), kind }
    }

    fn answer(&self, place: &Place<'_>, reply: &Value) -> Result<Acquired, BackendError> {
        let row = Row::of(reply)?;
        self.kind.warn_of(place, &row, &self.shared)?;
        reply::acquired(&row)
    }
}

impl<K: Kind> Rules for Locks<K> {
    fn supports(&self, kind: LockKind) -> bool {
        self.kind.supports(kind)
    }

    fn acquire<'a>(&self, ask: &'a Acquire<'_>) -> Result<Call<'a>, BackendError> {
        self.shared.calls.check(ask, &self.shared.servers)?;
        let keys = self.shared.keys(ask.place.lock)?;
        let place = &ask.place;
        let arguments = [
            Text(place.owner.as_str()),
            Request(place.request),
            Number(millis(ask.lease)),
            Number(millis(self.kind.time_of(place))),
            Number(millis(place.ttl)),
            Text(self.kind.mode(place)),
            Channel,
            Text(ask.label),
            BeginBy,
        ];
        Ok(Call::new(&scripts::REDISSON_ACQUIRE, keys, arguments))
    }

    /// A waiter that was not yet subscribed to its channel is subscribed now, and asks once more.
    fn acquired(&self, ask: &Acquire<'_>, call: &Call<'_>, reply: Value) -> Result<Acquired, BackendError> {
        let place = &ask.place;
        let mut answer = self.answer(place, &reply)?;
        if place.wait != Wait::No && !matches!(answer, Acquired::Granted { .. }) {
            let keys = self.shared.keys(place.lock)?;
            match self.channels.listen(&self.shared, place, || self.kind.channel(place, &keys))? {
                Subscribed::Before => return Ok(answer),
                Subscribed::JustNow => answer = self.answer(place, &self.shared.run(call)?)?,
            }
        }
        if matches!(answer, Acquired::Granted { .. }) {
            self.stop_listening(place);
        }
        Ok(answer)
    }

    fn release<'a>(&self, hold: &'a Hold<'_>) -> Result<Call<'a>, BackendError> {
        let keys = self.shared.keys(hold.lock)?;
        let arguments = [&named(hold)[..], &[Channel]].concat();
        Ok(Call::new(&scripts::REDISSON_RELEASE, keys, arguments))
    }

    fn keep(&self, hold: &Hold<'_>, keeper: RequestId, lease: Duration) -> Result<HoldKept, BackendError> {
        let keys = self.shared.keys(hold.lock)?;
        let rest = [Request(keeper), Number(at_least_millis(lease)), Channel, BeginBy];
        let arguments = [&named(hold)[..], &rest].concat();
        let reply = self.shared.run(&Call::new(&scripts::REDISSON_KEEP, keys, arguments))?;
        reply::kept(&Row::of(&reply)?)
    }

    fn renew_holds<'a>(
        &self,
        holds: &[&'a Hold<'_>],
        count: u32,
        lease: Duration,
    ) -> Result<Call<'a>, BackendError> {
        let mut arguments = vec![Number(count.into()), Number(millis(lease))];
        holds.iter().for_each(|hold| arguments.extend(named(hold)));
        Call::for_many(&scripts::REDISSON_RENEW_HOLDS, self.shared.keys_of(holds)?, arguments)
            .ok_or_else(missing)
    }

    fn renew_places<'a>(
        &self,
        lock: &LockId,
        places: &[(&'a Place<'_>, Duration)],
    ) -> Result<Call<'a>, BackendError> {
        let keys = self.shared.keys(lock)?;
        let mut arguments: Vec<Argument<'_>> = vec![Channel];
        for (place, lease) in places {
            let (owner, time) = (Text(place.owner.as_str()), Number(millis(self.kind.time_of(place))));
            arguments.extend([owner, Request(place.request), time, Number(millis(*lease))]);
        }
        Ok(Call::new(&scripts::REDISSON_RENEW, keys, arguments))
    }

    /// Redisson's queue restores no places, so its rules need not know of a kick.
    fn withdraw<'a>(&self, place: &'a Place<'_>, _: By) -> Result<Call<'a>, BackendError> {
        let keys = self.shared.keys(place.lock)?;
        let arguments = [
            Text(place.owner.as_str()),
            Request(place.request),
            Number(millis(self.kind.time_of(place))),
            Number(millis(place.ttl)),
            Channel,
            BeginBy,
        ];
        Ok(Call::new(&scripts::REDISSON_WITHDRAW, keys, arguments))
    }

    fn stop_listening(&self, place: &Place<'_>) {
        self.channels.stop_listening(&self.shared, place);
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        let keys = self.shared.keys(lock)?;
        let call = Call::new(&scripts::REDISSON_FORCE_RELEASE, keys, [Channel, BeginBy]);
        reply::force_released(&Row::of(&self.shared.run(&call)?)?)
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        let reply = self.shared.run(&self.release(hold)?)?;
        self.released(hold, &reply).map(ForceReleased::from)
    }

    fn keeps_place_by_owner(&self) -> bool {
        self.kind.keeps_place_by_owner()
    }
}
