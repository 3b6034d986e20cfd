//! Discipline `Redisson`: the fair lock whose line is shared with Java.
//!
//! Each waiter has a channel of its own, on which the releaser tells it to ask again. The list holds the order; the
//! sorted set holds the time at which each waiter counts as dead, and heartbeats keep our own entries alive in it.

use std::time::Duration;

use fairlock_core::backend::{Acquire, BackendError, Holder, LockId, LockState, Place, Wait, Waiter};
use fairlock_core::{LockKind, OwnerId};
use redis::Value;

use super::{Kind, Locks, Scripts};
use crate::rules::{Line, Look};
use crate::script::arguments::{Argument, millis};
use crate::script::keys::{Keys, queues};
use crate::script::reply::{Row, items, number, text, time, token, written};
use crate::script::run::{Call, foreign};
use crate::script::scripts;
use crate::shared::Shared;

/// How long places in Redisson's line last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fair {
    pub(crate) thread_wait: Duration,
    pub(crate) refresh_on_retry: bool,
}

impl Fair {
    /// How long a place lasts: as long as its caller waits, or the thread wait.
    fn time_of(&self, place: &Place<'_>) -> Argument<'static> {
        let time = match place.wait {
            Wait::UpTo(time) => time,
            _ => self.thread_wait,
        };
        millis(time).into()
    }
}

impl Kind for Fair {
    const SCRIPTS: Scripts = Scripts {
        acquire: &scripts::REDISSON_ACQUIRE,
        renew: &scripts::REDISSON_RENEW,
        release: &scripts::REDISSON_RELEASE,
        withdraw: &scripts::REDISSON_WITHDRAW,
        force_release: &scripts::REDISSON_FORCE_RELEASE,
    };

    fn keeps(&self, kind: LockKind) -> bool {
        kind != LockKind::Plain && !kind.is_shared()
    }

    fn acquire<'a>(&self, ask: &'a Acquire<'a>, keys: &'a Keys) -> Vec<Argument<'a>> {
        let place = &ask.place;
        let mode = match place.wait {
            Wait::No => "once",
            _ if self.refresh_on_retry => "refresh",
            _ => "wait",
        };
        vec![
            place.owner.as_str().into(),
            place.request.into(),
            millis(ask.lease).into(),
            self.time_of(place),
            millis(place.ttl).into(),
            mode.into(),
            keys.channel().into(),
            ask.label.into(),
            Argument::BeginBy,
        ]
    }

    fn channel(&self, place: &Place<'_>, keys: &Keys) -> String {
        keys.waiter_channel(place.owner.as_str())
    }

    fn before_places<'a>(&self, keys: &'a Keys) -> Option<Argument<'a>> {
        Some(keys.channel().into())
    }

    fn place<'a>(&self, place: &Place<'a>, lease: Duration, to: &mut Vec<Argument<'a>>) {
        let (owner, wait) = (place.owner.as_str(), self.time_of(place));
        to.extend_from_slice(&[owner.into(), place.request.into(), wait, millis(lease).into()]);
    }

    fn withdraw<'a>(&self, place: &'a Place<'a>, keys: &'a Keys) -> Vec<Argument<'a>> {
        vec![
            place.owner.as_str().into(),
            place.request.into(),
            self.time_of(place),
            millis(place.ttl).into(),
            keys.channel().into(),
            Argument::BeginBy,
        ]
    }

    fn warn_of(&self, place: &Place<'_>, answer: &Row<'_>, shared: &Shared) -> Result<(), BackendError> {
        if answer.word == "queued" && answer.number(3)? != 0 {
            log::warn!(
                target: "fairlock::acquire",
                event = "repaired", lock = place.lock.name.as_str(), owner = place.owner.as_str();
                "lock {}: queue and timeouts at {} disagreed about {}: repaired, it stands at the tail",
                place.lock.name,
                shared.servers,
                place.owner
            );
        }
        Ok(())
    }

    fn keeps_place_by_owner(&self) -> bool {
        true
    }
}

impl Line for Locks<Fair> {
    fn look(&self, lock: &LockId, at: &Look) -> Result<Call, BackendError> {
        let arguments = [at.from, at.many, at.examined].map(Argument::Number);
        Ok(Call::new(&scripts::INSPECT, &self.shared.keys(lock)?, &arguments))
    }

    fn seen(&self, _: LockKind, reply: &Value) -> Result<LockState, BackendError> {
        let row = Row::of(reply)?;
        let mut state = LockState::default();
        // A field that can't be read was written neither by fairlock nor by Redisson.
        let holder = holder(&row);
        let holder =
            holder.map_err(|_| foreign(&self.shared.servers, "the holder can't be read", "inspect"))?;
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
