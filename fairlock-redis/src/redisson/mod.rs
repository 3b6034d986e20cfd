//! Locks that are shared with Java's Redisson: discipline `Redisson` with its fair locks, and plain locks.
//!
//! Both have one holder under its owner's name, and their waiters listen on Redisson's channels.

mod channels;
mod fair;
mod plain;

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquired, BackendError, ForceReleased, Hold, HoldCountSet, LockId, Place, Released, Wait,
};
use redis::Value;

pub(crate) use self::channels::Channels;
use self::channels::Subscribed;
pub(crate) use self::fair::{Fair, Places};
pub(crate) use self::plain::Plain;
use crate::script::answers;
use crate::script::arguments::{Argument, millis};
use crate::script::keys::Keys;
use crate::script::reply::{Row, missing};
use crate::script::run::Call;
use crate::script::scripts::{Script, of_redisson as scripts};
use crate::shared::Shared;

/// What both kinds of locks share.
#[derive(Clone)]
struct Common {
    shared: Arc<Shared>,
    channels: Arc<Channels>,
}

impl Common {
    fn call(
        &self,
        script: &'static Script,
        lock: &LockId,
        arguments: &[Argument<'_>],
    ) -> Result<Call, BackendError> {
        Ok(Call::new(script, &self.shared.keys(lock)?, arguments))
    }

    fn run(&self, call: &Call) -> Result<Value, BackendError> {
        self.shared.run(call)
    }

    /// The answer to a call, read from its first reply. A waiter that was not yet subscribed to its channel is subscribed now, and
    /// asks once more.
    fn acquired(
        &self,
        place: &Place<'_>,
        call: &Call,
        reply: &Value,
        read: impl Fn(&Value) -> Result<Acquired, BackendError>,
        channel: impl FnOnce(&Keys) -> String,
    ) -> Result<Acquired, BackendError> {
        let mut answer = read(reply)?;
        if place.wait != Wait::No && !matches!(answer, Acquired::Granted { .. }) {
            let keys = self.shared.keys(place.lock)?;
            match self.channels.listen(&self.shared, place, || channel(&keys))? {
                Subscribed::Before => return Ok(answer),
                Subscribed::JustNow => answer = read(&self.run(call)?)?,
            }
        }
        if matches!(answer, Acquired::Granted { .. }) {
            self.stop_listening(place);
        }
        Ok(answer)
    }

    fn stop_listening(&self, place: &Place<'_>) {
        self.channels.stop_listening(&self.shared, place);
    }

    fn release(&self, script: &'static Script, hold: &Hold<'_>) -> Result<Released, BackendError> {
        let keys = self.shared.keys(hold.lock)?;
        let arguments =
            [hold.owner.as_str().into(), hold.request.into(), hold.token.into(), keys.channel().into()];
        answers::released(&Row::of(&self.run(&Call::new(script, &keys, &arguments))?)?)
    }

    fn force_release(&self, script: &'static Script, lock: &LockId) -> Result<ForceReleased, BackendError> {
        let keys = self.shared.keys(lock)?;
        let call = Call::new(script, &keys, &[keys.channel().into(), Argument::BeginBy]);
        answers::force_released(&Row::of(&self.run(&call)?)?)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        let arguments =
            [hold.owner.as_str().into(), hold.request.into(), hold.token.into(), u64::from(holds).into()];
        let reply = self.run(&self.call(&scripts::HOLD_SET_HOLD_COUNT, hold.lock, &arguments)?)?;
        let row = Row::of(&reply)?;
        match row.word {
            "set" => Ok(HoldCountSet::Set),
            "lost" => Ok(HoldCountSet::Lost),
            _ => Err(row.unexpected()),
        }
    }

    fn renew_holds(&self, holds: &[&Hold<'_>], count: u32, lease: Duration) -> Result<Call, BackendError> {
        let mut arguments = vec![Argument::Number(count.into()), millis(lease).into()];
        for hold in holds {
            arguments.extend_from_slice(&[
                hold.owner.as_str().into(),
                hold.request.into(),
                hold.token.into(),
            ]);
        }
        let locks = holds.iter().map(|hold| self.shared.keys(hold.lock)).collect::<Result<Vec<_>, _>>()?;
        Call::for_many(&scripts::HOLD_RENEW, &locks, &arguments, None).ok_or_else(missing)
    }
}
