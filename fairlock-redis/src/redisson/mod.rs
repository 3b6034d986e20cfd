//! Locks that are shared with Java's Redisson: discipline `Redisson` with its fair locks, and plain locks.
//!
//! Both have one holder under its owner's name, and their waiters listen on Redisson's channels.

mod channels;
mod fair;
mod plain;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldCountSet, LockId, Place, Released, Wait,
};
use redis::Value;

pub(crate) use self::channels::Channels;
use self::channels::Subscribed;
pub(crate) use self::fair::Fair;
pub(crate) use self::plain::Plain;
use crate::rules::{By, Rules};
use crate::script::answers;
use crate::script::arguments::Argument::{self, BeginBy, Number, Request, Text};
use crate::script::arguments::millis;
use crate::script::keys::Keys;
use crate::script::reply::{Row, missing};
use crate::script::run::Call;
use crate::script::scripts::{self, Script};
use crate::shared::Shared;

/// Locks of one kind.
pub(crate) struct Locks<K> {
    shared: Arc<Shared>,
    channels: Arc<Channels>,
    kind: K,
}

type Lua = &'static LazyLock<Script>;

/// What fair and plain locks differ in: scripts, their arguments, and channels.
pub(crate) trait Kind: Send + Sync {
    const ACQUIRE: Lua;
    const RENEW: Lua;
    const RELEASE: Lua;
    const WITHDRAW: Lua;
    const FORCE_RELEASE: Lua;
    /// Whether an owner's place is found by its owner alone.
    const KEEPS_PLACE_BY_OWNER: bool;

    fn keeps(&self, kind: LockKind) -> bool;

    fn acquire<'a>(&self, ask: &'a Acquire<'a>, keys: &'a Keys) -> Vec<Argument<'a>>;

    /// The channel on which this waiter is told to ask again.
    fn channel(&self, place: &Place<'_>, keys: &Keys) -> String;

    /// Of a renewal: what comes before the places, and each of them.
    fn before_places<'a>(&self, _keys: &'a Keys) -> Option<Argument<'a>> {
        None
    }
    fn place<'a>(&self, place: &Place<'a>, lease: Duration, to: &mut Vec<Argument<'a>>);

    fn withdraw<'a>(&self, place: &'a Place<'a>, keys: &'a Keys) -> Vec<Argument<'a>>;

    /// The answer to a request found the lock's line damaged.
    fn warn_of(&self, _place: &Place<'_>, _answer: &Row<'_>, _shared: &Shared) -> Result<(), BackendError> {
        Ok(())
    }
}

/// Names the hold in a script's arguments.
fn named<'a>(hold: &'a Hold<'a>) -> [Argument<'a>; 3] {
    [Text(hold.owner.as_str()), Request(hold.request), Number(hold.token.get())]
}

impl<K: Kind> Locks<K> {
    pub(crate) fn new(shared: &Arc<Shared>, channels: &Arc<Channels>, kind: K) -> Locks<K> {
        Locks { shared: Arc::clone(shared), channels: Arc::clone(channels), kind }
    }

    fn answer(&self, place: &Place<'_>, reply: &Value) -> Result<Acquired, BackendError> {
        let row = Row::of(reply)?;
        self.kind.warn_of(place, &row, &self.shared)?;
        answers::acquired(&row)
    }
}

impl<K: Kind> Rules for Locks<K> {
    fn keeps(&self, kind: LockKind) -> bool {
        self.kind.keeps(kind)
    }

    fn acquire(&self, ask: &Acquire<'_>) -> Result<Call, BackendError> {
        self.shared.calls.check(ask)?;
        let keys = self.shared.keys(ask.place.lock)?;
        Ok(Call::new(K::ACQUIRE, &keys, &self.kind.acquire(ask, &keys)))
    }

    /// A waiter that was not yet subscribed to its channel is subscribed now, and asks once more.
    fn acquired(&self, ask: &Acquire<'_>, call: &Call, reply: Value) -> Result<Acquired, BackendError> {
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

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        let arguments = [&named(hold)[..], &[Number(holds.into())]].concat();
        let call = Call::new(&scripts::HOLD_SET_HOLD_COUNT, &self.shared.keys(hold.lock)?, &arguments);
        answers::hold_count_set(&Row::of(&self.shared.run(&call)?)?)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        let keys = self.shared.keys(hold.lock)?;
        let arguments = [&named(hold)[..], &[Text(keys.channel())]].concat();
        let reply = self.shared.run(&Call::new(K::RELEASE, &keys, &arguments))?;
        answers::released(&Row::of(&reply)?)
    }

    fn renew_holds(&self, holds: &[&Hold<'_>], count: u32, lease: Duration) -> Result<Call, BackendError> {
        let mut arguments = vec![Number(count.into()), Number(millis(lease))];
        holds.iter().for_each(|hold| arguments.extend(named(hold)));
        let locks = holds.iter().map(|hold| self.shared.keys(hold.lock)).collect::<Result<Vec<_>, _>>()?;
        Call::for_many(&scripts::HOLD_RENEW, &locks, &arguments, None).ok_or_else(missing)
    }

    fn renew_places(&self, lock: &LockId, places: &[(&Place<'_>, Duration)]) -> Result<Call, BackendError> {
        let keys = self.shared.keys(lock)?;
        let mut arguments: Vec<Argument<'_>> = self.kind.before_places(&keys).into_iter().collect();
        places.iter().for_each(|(place, lease)| self.kind.place(place, *lease, &mut arguments));
        Ok(Call::new(K::RENEW, &keys, &arguments))
    }

    /// These lines restore no places, so they need not be told of a kick.
    fn withdraw(&self, place: &Place<'_>, _: By) -> Result<Call, BackendError> {
        let keys = self.shared.keys(place.lock)?;
        Ok(Call::new(K::WITHDRAW, &keys, &self.kind.withdraw(place, &keys)))
    }

    fn stop_listening(&self, place: &Place<'_>) {
        self.channels.stop_listening(&self.shared, place);
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        let keys = self.shared.keys(lock)?;
        let call = Call::new(K::FORCE_RELEASE, &keys, &[Text(keys.channel()), BeginBy]);
        answers::force_released(&Row::of(&self.shared.run(&call)?)?)
    }

    fn keeps_place_by_owner(&self) -> bool {
        K::KEEPS_PLACE_BY_OWNER
    }
}
