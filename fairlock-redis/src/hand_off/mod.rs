//! Discipline `HandOff`: a script that frees units grants the lock to all waiters at the head of the queue that now fit, and
//! publishes a message for each. A fair lock has one unit: the releasing script itself makes the next waiter the holder.
//!
//! One trip from release to the next holder, and no work that grows with the queue. Each client has one channel for all
//! its messages, so waiting needs no further subscription.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, BackendErrorKind, ForceReleased, Hold, Holder, LockId, LockState,
    MOST_INSPECTED, Place, Released, RequestId, Wait, Waiter, Withdrawn,
};
use fairlock_core::{LockKind, LockName, OwnerId};
use parking_lot::Mutex;
use redis::{Value, cmd};

use crate::durable::Calls;
use crate::net::attempt_length;
use crate::script::reply::{Row, items, number, rank, recheck_in, time, token, unintelligible, written};
use crate::script::scripts::Argument::{BeginBy, Member, Number, Options, Text};
use crate::script::scripts::{Argument, Keys, condition, millis, queues};
use crate::script::{Kinds, Look, ScriptCall, Scripts, reply, scripts};
use crate::wake_ups::WakeUps;

/// Our own queue, for locks of any capacity.
pub(crate) struct HandOff {
    scripts: Arc<Scripts>,
    calls: Arc<Calls>,
    wake_ups: Arc<WakeUps>,
    shared_names: SharedNames,
    /// Set once any hold count other than 1 was sent. Until then renewals skip the counts.
    tells_counts: AtomicBool,
}

impl HandOff {
    pub(crate) fn new(scripts: &Arc<Scripts>, calls: &Arc<Calls>, wake_ups: &Arc<WakeUps>) -> HandOff {
        let (scripts, calls, wake_ups) = (Arc::clone(scripts), Arc::clone(calls), Arc::clone(wake_ups));
        let (shared_names, tells_counts) = (SharedNames::default(), AtomicBool::new(false));
        HandOff { scripts, calls, wake_ups, shared_names, tells_counts }
    }

    /// What the scripts have to know of this place, and of the listeners.
    fn options(&self, place: &Place<'_>) -> Argument<'static> {
        Options { waits: place.wait != Wait::No, hears: self.wake_ups.hears(place) }
    }

    /// For how long scripts of one operation are repeated.
    fn patience(&self) -> Duration {
        self.scripts.servers.timeouts().response
    }

    /// Goes on if a script has said that there is more to do: otherwise units would stay free until the next heartbeat. (A waiter needs
    /// no help: it is told to ask again at once.)
    ///
    /// What the caller asked for is done, so a failure here does not change the answer: the heartbeats do the rest. The loop ends at
    /// the end of the queue, and starts no further script after one response time-out.
    fn resume(&self, lock: &LockId, mut has_more: bool) {
        if !has_more {
            return;
        }
        let until = Instant::now() + self.patience();
        while has_more && Instant::now() < until {
            // Without a member nobody leaves, and the script only hands on what is free.
            let reply = self.leave(lock, Text("")).and_then(|call| self.scripts.run(&call));
            has_more = reply.is_ok_and(|reply| {
                Row::of(&reply).and_then(|row| row.at(0, number)).is_ok_and(|more| more == 1)
            });
        }
    }

    /// The answer in one reply, and whether it is "busy" only because the script has reached a limit.
    fn answer(&self, ask: &Acquire<'_>, reply: &Value) -> Result<(Acquired, bool), BackendError> {
        match reply {
            Value::Int(_) => Ok((Acquired::Granted { token: token(reply)?, lease: ask.lease }, false)),
            Value::Array(numbers) if matches!(numbers.first(), Some(Value::Int(_))) => {
                let [at, recheck, ticket, latest, is_foreign] = &numbers[..] else {
                    return Err(unintelligible(reply));
                };
                if number(is_foreign)? == 1 {
                    self.shared_names.seen_foreign(&self.scripts, ask.place.lock);
                }
                let (at, recheck_in) = (rank(at)?, recheck_in(recheck)?);
                let (ticket, latest) = (rank(ticket)?, rank(latest)?);
                Ok((Acquired::Queued { rank: at, recheck_in, ticket, latest }, false))
            }
            _ => {
                let row = Row::of(reply)?;
                let has_more = row.word == "busy" && row.if_any(1, number)? == Some(1);
                Ok((reply::acquired(&row)?, has_more))
            }
        }
    }

    fn leave<'a>(&self, lock: &LockId, member: Argument<'a>) -> Result<ScriptCall<'a>, BackendError> {
        self.scripts.call(&scripts::HAND_OFF_WITHDRAW, [lock], [member, capacity(lock), OF_NOBODY])
    }

    /// Takes the lock from all its holders, or takes only this hold. A script looks at some hundred holders: the next script goes on
    /// behind them, and takes no hold that was granted meanwhile. So many holders may renew, and move behind the others, that the end is
    /// never reached: no further script starts after one response time-out.
    fn take(&self, lock: &LockId, only: Option<&Hold<'_>>) -> Result<ForceReleased, BackendError> {
        let [member, token] = only.map_or([Text(""); 2], named);
        let mut arguments = vec![OF_NOBODY, capacity(lock), BeginBy, member, token];
        let mut answer = ForceReleased::NotHeld;
        let until = Instant::now() + self.patience();
        loop {
            let call = self.scripts.call(&scripts::HAND_OFF_FORCE_RELEASE, [lock], &arguments[..])?;
            let reply = self.scripts.run(&call)?;
            let row = Row::of(&reply)?;
            if reply::force_released(&row)? == ForceReleased::Taken {
                answer = ForceReleased::Taken;
            }
            let more = row.if_any(0, number)? == Some(1);
            let [last_token, end] = [1, 2].map(|index| row.if_any(index, rank));
            let (Some(last_token), Some(end)) = (last_token?, end?) else {
                self.resume(lock, more);
                return Ok(answer);
            };
            if Instant::now() >= until {
                let what = "not all holders of the lock could be looked at in one response time-out; some may be left: ask again";
                return Err(BackendError::new(BackendErrorKind::Unavailable, what));
            }
            arguments.truncate(5);
            arguments.extend([last_token, end].map(Number));
        }
    }
}

/// What the scripts have to know of the listeners alone.
const OF_NOBODY: Argument<'static> = Options { waits: false, hears: None };

/// The member and the token of a hold.
fn named<'h>(hold: &'h Hold<'_>) -> [Argument<'h>; 2] {
    [Member(hold.owner, hold.request), Number(hold.token.get())]
}

fn capacity(lock: &LockId) -> Argument<'static> {
    Number(lock.kind.capacity().into())
}

impl HandOff {
    /// The script that asks for a lock.
    pub(crate) fn acquire<'a>(&self, ask: &'a Acquire<'_>) -> Result<ScriptCall<'a>, BackendError> {
        let (place, lock) = (&ask.place, ask.place.lock);
        self.calls.check(lock, ask.lease, &self.scripts.servers)?;
        let mut arguments = vec![
            Member(place.owner, place.request),
            Number(millis(ask.lease)),
            Number(millis(place.ttl)),
            self.options(place),
            Text(ask.label),
            Number(u64::from(place.units)),
            capacity(lock),
            BeginBy,
            Number(place.ticket),
        ];
        arguments.extend(condition(ask));
        self.scripts.call(&scripts::HAND_OFF_ACQUIRE, [lock], arguments)
    }

    /// The answer to this call, whose first reply is `reply`. Some answers need more than one script.
    pub(crate) fn acquired(
        &self,
        ask: &Acquire<'_>,
        call: &ScriptCall<'_>,
        mut reply: Value,
    ) -> Result<Acquired, BackendError> {
        let mut until = None;
        loop {
            let (answer, has_more) = self.answer(ask, &reply)?;
            // An attempt that does not wait leaves nothing behind, so it is repeated as a whole.
            if has_more && Instant::now() < *until.get_or_insert_with(|| Instant::now() + self.patience()) {
                reply = self.scripts.run(call)?;
                continue;
            }
            return Ok(answer);
        }
    }

    /// The script that gives a hold up.
    pub(crate) fn release<'a>(&self, hold: &'a Hold<'_>) -> Result<ScriptCall<'a>, BackendError> {
        let [member, token] = named(hold);
        let units = Number(hold.units.into());
        let arguments = [capacity(hold.lock), member, units, token, OF_NOBODY];
        self.scripts.call(&scripts::HAND_OFF_RELEASE, [hold.lock], arguments)
    }

    pub(crate) fn released(&self, hold: &Hold<'_>, reply: &Value) -> Result<Released, BackendError> {
        let (answer, more) = match reply {
            Value::Int(more @ 0..=1) => (Released::Released, *more),
            _ => {
                let row = Row::of(reply)?;
                (reply::released(&row)?, row.if_any(0, number)?.unwrap_or(0))
            }
        };
        self.resume(hold.lock, more == 1);
        Ok(answer)
    }

    /// The script that gives a hold to another owner.
    pub(crate) fn adopt<'a>(
        &self,
        hold: &'a Hold<'_>,
        owner: &'a OwnerId,
        lease: Duration,
    ) -> Result<ScriptCall<'a>, BackendError> {
        self.calls.check(hold.lock, lease, &self.scripts.servers)?;
        let ([member, token], adopter) = (named(hold), Member(owner, hold.request));
        let arguments = [capacity(hold.lock), member, token, adopter, Number(millis(lease))];
        self.scripts.call(&scripts::HAND_OFF_ADOPT, [hold.lock], arguments)
    }

    /// A renewal of the round that begins tells this count.
    pub(crate) fn will_tell(&self, count: u32) {
        if count != 1 {
            self.tells_counts.store(true, Ordering::Relaxed);
        }
    }

    /// The script that renews holds. All have the same count and lease, the same server, and the same number of keys.
    pub(crate) fn renew_holds<'a>(
        &self,
        holds: &[&'a Hold<'_>],
        count: u32,
        lease: Duration,
    ) -> Result<ScriptCall<'a>, BackendError> {
        let tells_count = self.tells_counts.load(Ordering::Relaxed);
        let told = if tells_count { Number(count.into()) } else { Text("") };
        let mut arguments = Vec::with_capacity(3 + 2 * holds.len());
        arguments.extend([told, Number(millis(lease))]);
        let attempt = attempt_length(self.scripts.servers.timeouts().response);
        let script = match (holds, self.calls.reclaims(attempt)) {
            // The script of many marks the holds that a server has forgotten, and each of them is reclaimed alone.
            ([hold], Some(sent_before)) => {
                let ([member, token], units) = (named(hold), Number(hold.units.into()));
                let sent_before = Number(millis(sent_before));
                arguments.extend([capacity(hold.lock), member, units, token, BeginBy, sent_before]);
                &scripts::HAND_OFF_RECLAIM
            }
            _ => {
                let has_parts = holds.iter().any(|hold| hold.lock.kind.capacity() > 1);
                arguments.push(Number(if has_parts { 2 } else { 1 })); // keys of each
                arguments.extend(holds.iter().flat_map(|hold| named(hold)));
                &scripts::HAND_OFF_RENEW_HOLDS
            }
        };
        self.scripts.call(script, holds.iter().map(|hold| hold.lock), arguments)
    }

    /// The script that renews places of one lock. Each place comes with the lease of its grant; they have one time to live, that of
    /// their client.
    pub(crate) fn renew_places<'a>(
        &self,
        lock: &LockId,
        places: &[(&'a Place<'_>, Duration)],
    ) -> Result<ScriptCall<'a>, BackendError> {
        let ttl = places.iter().map(|(place, _)| place.ttl).max().unwrap_or_default();
        // All places are of one client.
        let options = places.first().map_or(OF_NOBODY, |(place, _)| self.options(place));
        let mut arguments = vec![Number(millis(ttl)), options, capacity(lock)];
        for (place, lease) in places {
            let member = Member(place.owner, place.request);
            arguments.extend([member, Number(millis(*lease)), Number(place.ticket)]);
        }
        self.scripts.call(&scripts::HAND_OFF_RENEW, [lock], arguments)
    }

    /// The script that takes a request out of the queue.
    pub(crate) fn withdraw<'a>(&self, place: &'a Place<'_>) -> Result<ScriptCall<'a>, BackendError> {
        self.leave(place.lock, Member(place.owner, place.request))
    }

    pub(crate) fn withdrawn(&self, place: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
        let row = Row::of(reply)?;
        let answer = reply::withdrawn(&row)?;
        self.resume(place.lock, answer == Withdrawn::Left && row.if_any(0, number)? == Some(1));
        Ok(answer)
    }

    /// Its waiters have no channels of their own.
    pub(crate) fn stop_listening(&self, _: &Place<'_>) {}

    pub(crate) fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        self.take(lock, None)
    }

    /// Takes one hold away. If no message tells the holder before, its next renewal does.
    pub(crate) fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        self.take(hold.lock, Some(hold))
    }

    /// The script that looks at a lock.
    pub(crate) fn look(&self, lock: &LockId, at: &Look) -> Result<ScriptCall<'static>, BackendError> {
        let capacity = if at.kinds == Kinds::Any { 0 } else { u64::from(lock.kind.capacity()) };
        let arguments = [MOST_INSPECTED, at.from, at.many, at.examined, capacity].map(Number);
        self.scripts.call(&scripts::HAND_OFF_INSPECT, [lock], arguments)
    }

    /// The state in the script's reply, of a lock that was asked for as this kind.
    pub(crate) fn seen(&self, asked: LockKind, reply: &Value) -> Result<LockState, BackendError> {
        let row = Row::of(reply)?;
        let mut state = LockState::default();
        let is_told = |capacity: &u32| *capacity > 1 || asked.is_shared() && asked.capacity() == 1;
        state.capacity = u32::try_from(row.at(0, number)?).ok().filter(is_told);
        state.holders = row.at(3, items)?.iter().map(holder).collect::<Result<_, _>>()?;
        state.holders.sort_by_key(|holder| holder.token);
        state.unlisted_holders = row.at(2, rank)?.saturating_sub(state.holders.len() as u64);
        if state.unlisted_holders > 0 {
            let used = u32::try_from(row.at(1, rank)?).unwrap_or(u32::MAX);
            state.unlisted_units = used.saturating_sub(state.taken());
        }
        (state.queue_length, state.absent) = (row.at(4, rank)?, row.at(5, rank)?);
        state.queue = row.at(6, items)?.iter().map(waiter).collect::<Result<_, _>>()?;
        Ok(state)
    }

    /// Patterns for SCAN that find the keys of locks whose names match `pattern`, beside the locks' own, and their type.
    pub(crate) fn keys_like(&self, pattern: &str) -> (Vec<String>, &'static str) {
        (queues(pattern).to_vec(), "zset")
    }

    /// The commands of the scripts for a lock with these keys; and the commands that only locks of several holders need.
    pub(crate) fn needed<'k>(&self, keys: &'k Keys, client_channel: &'k str) -> [Vec<Vec<&'k str>>; 2] {
        let (queue, record, ends) = (keys.waiters(), keys.record(), keys.ends());
        let all = vec![
            vec!["ZADD", queue, "XX", "0", "a"],
            vec!["ZREM", queue, "a"],
            vec!["ZRANGE", queue, "0", "0"],
            vec!["ZCARD", queue],
            vec!["HDEL", record, "a"],
            vec!["ZRANK", queue, "a"],
            vec!["PUBSUB", "NUMSUB", client_channel],
        ];
        [all, vec![vec!["ZADD", ends, "XX", "0", "a"], vec!["ZSCORE", ends, "a"]]]
    }
}

/// Owner, request, time waited, rest of the place, units, label, and capacity. The last three are empty for a member without a place.
fn waiter(row: &Value) -> Result<Waiter, BackendError> {
    let [owner, asked, waiting, left, units, label, capacity] = items(row)? else {
        return Err(unintelligible(row));
    };
    let mut waiter = Waiter::new(OwnerId::new(&written(owner)?));
    waiter.request = request(asked)?;
    waiter.waiting = time(waiting)?;
    waiter.place_left = time(left)?;
    waiter.units = written(units)?.parse().unwrap_or(waiter.units);
    waiter.capacity = written(capacity)?.parse().ok().filter(|capacity| *capacity > 1);
    waiter.set_label(&written(label)?);
    Ok(waiter)
}

/// Owner, request, units, token, count, label, the rest of the lease, and for how long the hold has lasted. What only our own holds
/// have may be empty.
fn holder(row: &Value) -> Result<Holder, BackendError> {
    let [owner, asked, units, fencing_token, count, label, left, held] = items(row)? else {
        return Err(unintelligible(row));
    };
    let small = |value: &Value| number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let mut holder = Holder::new(OwnerId::new(&written(owner)?), small(count)?);
    holder.request = request(asked)?;
    holder.units = small(units)?;
    holder.token = if written(fencing_token)?.is_empty() { None } else { Some(token(fencing_token)?) };
    holder.set_label(&written(label)?);
    holder.lease_left = time(left)?;
    holder.held_for = time(held)?;
    Ok(holder)
}

fn request(written_in_hex: &Value) -> Result<Option<RequestId>, BackendError> {
    Ok(u64::from_str_radix(&written(written_in_hex)?, 16).ok().map(RequestId::new))
}

/// How long a name is left alone: a look without the right to the key is an entry in the server's ACL LOG.
const ONCE_IN: Duration = Duration::from_secs(3600);
/// The least time between two looks. So a silent server delays the thread, which may be the watchdog, by one response time-out at
/// most; and at most sixty names are remembered.
const ANY_ONCE_IN: Duration = Duration::from_secs(60);

/// Logs a warning if clients of both disciplines wait for one name. Has the names that were looked for in the last hour.
///
/// A queued waiter is told that a hold of another discipline has the lock. The hold may be of Redisson's plain lock, whose waiters get
/// the lock when our queue is empty. But Redisson's fair lock has its own queue, and the two queues have no common order. So the client
/// looks whether there is such a queue, outside of the scripts, which do not need to know.
///
/// The look is for the log alone. If the user lacks the right to the key, or there is no answer, nothing follows.
#[derive(Default)]
struct SharedNames(Mutex<HashMap<LockName, Instant>>);

impl SharedNames {
    /// A reply said that a hold of another discipline has this lock. If it is time, looks whether clients of that discipline wait, too.
    fn seen_foreign(&self, scripts: &Scripts, lock: &LockId) {
        if self.is_due(&lock.name, Instant::now()) && has_queue(scripts, lock) {
            log::warn!(
                target: "fairlock::acquire",
                event = "two disciplines", lock = lock.name.as_str();
                "lock {}: clients wait for it in Redisson's queue (discipline `Redisson`) and in ours (`HandOff`); there is no order \
                 between the two, and theirs gets the lock only when ours is empty: choose one discipline for all clients of a lock",
                lock.name
            );
        }
    }

    /// Whether to look now. If so, the look counts as done.
    fn is_due(&self, lock: &LockName, now: Instant) -> bool {
        let mut looked = self.0.lock();
        looked.retain(|_, at| now.saturating_duration_since(*at) < ONCE_IN);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < ANY_ONCE_IN;
        let is_due = !looked.contains_key(lock) && !looked.values().any(is_recent);
        if is_due {
            looked.insert(lock.clone(), now);
        }
        is_due
    }
}

fn has_queue(scripts: &Scripts, lock: &LockId) -> bool {
    let Ok(keys) = scripts.keys.of(lock) else { return false };
    let question = cmd("EXISTS").arg(keys.queue()).get_packed_command();
    let answer = scripts.servers.call(keys.lock(), |route| route.call(&question));
    answer.is_ok_and(|answer| answer == Value::Int(1))
}

#[cfg(test)]
mod tests;
