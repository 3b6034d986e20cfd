//! Discipline `Redisson`: the fair lock whose line is shared with Java.
//!
//! Each waiter has a channel of its own, on which the releaser tells it to ask again. The list holds the order; the
//! sorted set holds the time at which each waiter counts as dead, and heartbeats keep our own entries alive in it.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, ForceReleased, Hold, HoldCountSet, Holder, LockId, LockState, Place,
    Released, Wait, Waiter,
};
use fairlock_core::{LockKind, OwnerId};
use redis::Value;

use super::{Channels, Common};
use crate::rules::{By, Line, Look, Rules};
use crate::script::answers;
use crate::script::arguments::{Argument, millis};
use crate::script::keys::{Keys, queues};
use crate::script::reply::{Row, items, number, text, time, token, written};
use crate::script::run::{Call, foreign};
use crate::script::scripts::of_redisson as scripts;
use crate::shared::Shared;

pub(crate) struct Fair {
    common: Common,
    places: Places,
}

/// How long places in Redisson's line last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) thread_wait: Duration,
    pub(crate) refresh_on_retry: bool,
}

impl Fair {
    pub(crate) fn new(shared: &Arc<Shared>, channels: &Arc<Channels>, places: Places) -> Fair {
        let common = Common { shared: Arc::clone(shared), channels: Arc::clone(channels) };
        Fair { common, places }
    }

    /// How long a place lasts: as long as its caller waits, or the thread wait.
    fn time_of(&self, place: &Place<'_>) -> Argument<'static> {
        let time = match place.wait {
            Wait::UpTo(time) => time,
            _ => self.places.thread_wait,
        };
        millis(time).into()
    }

    fn answer(&self, place: &Place<'_>, reply: &Value) -> Result<Acquired, BackendError> {
        let row = Row::of(reply)?;
        if row.word == "queued" && row.number(3)? != 0 {
            log::warn!(
                target: "fairlock::acquire",
                event = "repaired", lock = place.lock.name.as_str(), owner = place.owner.as_str();
                "lock {}: queue and timeouts at {} disagreed about {}: repaired, it stands at the tail",
                place.lock.name,
                self.common.shared.servers,
                place.owner
            );
        }
        answers::acquired(&row)
    }
}

impl Rules for Fair {
    fn keeps(&self, kind: LockKind) -> bool {
        kind != LockKind::Plain && !kind.is_shared()
    }

    fn acquire(&self, ask: &Acquire<'_>) -> Result<Call, BackendError> {
        let place = &ask.place;
        let mode = match place.wait {
            Wait::No => "once",
            _ if self.places.refresh_on_retry => "refresh",
            _ => "wait",
        };
        let keys = self.common.shared.keys(place.lock)?;
        let arguments = [
            place.owner.as_str().into(),
            place.request.into(),
            millis(ask.lease).into(),
            self.time_of(place),
            millis(place.ttl).into(),
            mode.into(),
            keys.channel().into(),
            ask.label.into(),
            Argument::BeginBy,
        ];
        Ok(Call::new(&scripts::REDISSON_ACQUIRE, &keys, &arguments))
    }

    fn acquired(&self, ask: &Acquire<'_>, call: &Call, reply: Value) -> Result<Acquired, BackendError> {
        let place = &ask.place;
        let channel = |keys: &Keys| keys.waiter_channel(place.owner.as_str());
        self.common.acquired(place, call, &reply, |reply| self.answer(place, reply), channel)
    }

    fn set_hold_count(&self, hold: &Hold<'_>, holds: u32) -> Result<HoldCountSet, BackendError> {
        self.common.set_hold_count(hold, holds)
    }

    fn release(&self, hold: &Hold<'_>) -> Result<Released, BackendError> {
        self.common.release(&scripts::REDISSON_RELEASE, hold)
    }

    fn renew_holds(&self, holds: &[&Hold<'_>], count: u32, lease: Duration) -> Result<Call, BackendError> {
        self.common.renew_holds(holds, count, lease)
    }

    fn renew_places(&self, lock: &LockId, places: &[(&Place<'_>, Duration)]) -> Result<Call, BackendError> {
        let keys = self.common.shared.keys(lock)?;
        let mut arguments = vec![keys.channel().into()];
        for (place, lease) in places {
            let (owner, wait) = (place.owner.as_str(), self.time_of(place));
            arguments.extend([owner.into(), place.request.into(), wait, millis(*lease).into()]);
        }
        Ok(Call::new(&scripts::REDISSON_RENEW, &keys, &arguments))
    }

    /// This line restores no places, so it need not be told of a kick.
    fn withdraw(&self, place: &Place<'_>, _: By) -> Result<Call, BackendError> {
        let keys = self.common.shared.keys(place.lock)?;
        let arguments = [
            place.owner.as_str().into(),
            place.request.into(),
            self.time_of(place),
            millis(place.ttl).into(),
            keys.channel().into(),
            Argument::BeginBy,
        ];
        Ok(Call::new(&scripts::REDISSON_WITHDRAW, &keys, &arguments))
    }

    fn stop_listening(&self, place: &Place<'_>) {
        self.common.stop_listening(place);
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.common.force_release(&scripts::REDISSON_FORCE_RELEASE, lock)
    }

    fn keeps_place_by_owner(&self) -> bool {
        true
    }
}

impl Line for Fair {
    fn look(&self, lock: &LockId, at: &Look) -> Result<Call, BackendError> {
        self.common.call(&scripts::INSPECT, lock, &[at.from, at.many, at.examined].map(Argument::Number))
    }

    fn seen(&self, _: LockKind, reply: &Value) -> Result<LockState, BackendError> {
        let row = Row::of(reply)?;
        let mut state = LockState::default();
        // A field that can't be read was written neither by fairlock nor by Redisson.
        let holder = holder(&row);
        let holder = holder
            .map_err(|_| foreign(&self.common.shared.servers, "the holder can't be read", "inspect"))?;
        state.holders = holder.into_iter().collect();
        (state.line_length, state.absent) = (row.rank(2)?, row.rank(3)?);
        state.line = items(row.at(4)?)?.chunks_exact(2).map(waiter).collect::<Result<_, _>>()?;
        Ok(state)
    }

    fn keys_like(&self, pattern: &str) -> (Vec<String>, &'static str) {
        (queues(pattern).to_vec(), "list")
    }

    fn needed<'k>(&self, keys: &'k Keys, _: &'k str) -> [Vec<Vec<&'k str>>; 2] {
        let (timeouts, queue) = (keys.timeouts().text(), keys.queue().text());
        let all = vec![
            vec!["ZADD", timeouts, "XX", "0", "a"],
            vec!["ZSCORE", timeouts, "a"],
            vec!["ZREM", timeouts, "a"],
            vec!["ZRANGE", timeouts, "0", "0"],
            vec!["ZCARD", timeouts],
            vec!["LINDEX", queue, "0"],
            vec!["LPOP", queue],
            vec!["LPOS", queue, "a"],
            vec!["LRANGE", queue, "0", "0"],
            vec!["LREM", queue, "0", "a"],
            vec!["LLEN", queue],
            vec!["RPUSH", queue, "a"],
        ];
        [all, Vec::new()]
    }
}

/// Owner, and what is left of its time.
fn waiter(place: &[Value]) -> Result<Waiter, BackendError> {
    let mut waiter = Waiter::new(OwnerId::new(&written(&place[0])?));
    waiter.place_left = time(&place[1])?;
    Ok(waiter)
}

/// The first two items of the reply: the holder, and the lease left.
fn holder(row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    let [owner, count, grant @ ..] = items(row.at(0)?)? else { return Ok(None) };
    let count = u32::try_from(number(count)?).map_err(|_| row.unexpected())?;
    let mut holder = Holder::new(OwnerId::new(&written(owner)?), count);
    holder.lease_left = time(row.at(1)?)?;
    if let [fencing_token, label, held] = grant {
        holder.token = Some(token(fencing_token)?);
        holder.held_for = text(held)?.parse().ok().map(Duration::from_millis);
        holder.label = Some(written(label)?.into_owned()).filter(|label| !label.is_empty());
    }
    Ok(Some(holder))
}
