//! The Redis backend: each method of the trait is a few keys, one script, one reply, by the rules of the lock. Only a renewal is about many
//! locks: it has few scripts for all holds and places of the watchdog.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, ForceReleased, Hold, LockId, LockState,
    MOST_INSPECTED, Place, Released, Renew, Renewal, Subscription, WakeSink, Withdrawn,
};
use fairlock_core::{ClientId, Clock, LockKind, OwnerId};
use redis::Value;

use crate::durable::Calls;
use crate::hand_off::HandOff;
use crate::net::{Order, attempt_ttl};
#[cfg(feature = "redisson")]
use crate::redisson::Redisson;
use crate::script::reply::{Row, missing, renewed, renewed_holds};
use crate::script::{CallFailure, Kinds, Look, ScriptCall, Scripts, reply};
use crate::wake_ups::WakeUps;

const NO_PLAIN: &str = "plain locks need the feature `redisson`";

/// Keeps locks on a Redis (or Valkey) server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct RedisBackend(pub(crate) Arc<Inner>);

// No call runs code of the program on its thread: no panic of the program leaves the middle of one.
impl UnwindSafe for RedisBackend {}
impl RefUnwindSafe for RedisBackend {}

pub(crate) struct Inner {
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) wake_ups: Arc<WakeUps>,
    /// The rules of the locks with a queue, by the backend's discipline. A plain handle, too, shows the queue of these locks.
    pub(crate) fair: Rules,
    /// The rules of the other discipline, to list the locks of that discipline.
    pub(crate) other: Option<Rules>,
    pub(crate) plain: Option<Rules>,
}

/// The rules that a lock follows: how each operation becomes a script, and what the reply means.
pub(crate) enum Rules {
    HandOff(HandOff),
    #[cfg(feature = "redisson")]
    Redisson(Redisson),
}

/// Calls a method that all rules have.
macro_rules! by_rules {
    ($rules:expr, $method:ident($($argument:expr),*)) => {
        match &$rules {
            $crate::backend::Rules::HandOff(rules) => rules.$method($($argument),*),
            #[cfg(feature = "redisson")]
            $crate::backend::Rules::Redisson(rules) => rules.$method($($argument),*),
        }
    };
}

pub(crate) use by_rules;

impl RedisBackend {
    /// The rest of the grace, as far as this client's calls have been told: until then its server grants no lock, and an
    /// attempt that does not wait finds each lock busy. None without [`durable`](crate::RedisBuilder::durable), before the first
    /// call, and when the grace is over. Asks no server.
    ///
    /// ```no_run
    /// # use fairlock_redis::{Durability, RedisBackend};
    /// let backend = RedisBackend::builder("redis://localhost").durable(Durability::default()).connect()?;
    /// // … an attempt found the lock busy
    /// if let Some(left) = backend.grace_left() {
    ///     println!("the server has a new past, try again in {left:.1?}");
    /// }
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    pub fn grace_left(&self) -> Option<Duration> {
        self.0.calls.grace_left()
    }

    /// Whether this client is the first [`durable`](crate::RedisBuilder::durable) client of the servers. If so, its first request
    /// begins their life: from then on clients without `durable` are refused locks with a queue, until the key `fairlock_life` is
    /// deleted. False without `durable`, and if the servers could not tell. Asks no server.
    ///
    /// ```no_run
    /// # use fairlock_redis::{Durability, RedisBackend};
    /// let backend = RedisBackend::builder("redis://localhost").durable(Durability::default()).connect()?;
    /// if backend.begins_life() {
    ///     eprintln!("from now on all programs that use locks of this server have to be durable");
    /// }
    /// # Ok::<(), fairlock_core::Error>(())
    /// ```
    pub fn begins_life(&self) -> bool {
        self.0.calls.is_first()
    }

    /// One round trip to each server, one server after the other. Each question has its own answer.
    fn ask_all<'q, Q, A>(
        &self,
        questions: &'q [Q],
        call: impl Fn(&'q Q) -> Result<ScriptCall<'q>, BackendError>,
        answer: impl Fn(&Q, &ScriptCall<'_>, Value) -> Result<A, BackendError>,
    ) -> Vec<Result<A, BackendError>> {
        let calls: Vec<_> = questions.iter().map(call).collect();
        let sent: Vec<&ScriptCall<'_>> = calls.iter().flatten().collect();
        // A call that is alone says more of its errors.
        let replies = match sent[..] {
            [one] => vec![self.0.scripts.run(one)],
            _ => {
                let replies = self.0.scripts.run_all(&sent, Order::InTurn).into_iter();
                replies.map(|reply| reply.map_err(|failure| failure.error)).collect()
            }
        };
        let mut replies = replies.into_iter();
        let answer = |(question, call): (&Q, &Result<ScriptCall<'_>, BackendError>)| {
            // Nothing of a call that can't be made was sent. Once there is a reply, something was, whatever follows.
            let call = call.as_ref().map_err(|error| error.clone().unsent())?;
            let reply = replies.next().unwrap_or_else(|| Err(missing()))?;
            answer(question, call, reply).map_err(BackendError::maybe_sent)
        };
        questions.iter().zip(&calls).map(answer).collect()
    }
}

impl Rules {
    /// Whether a lock may have several holders.
    pub(crate) fn have_shared(&self) -> bool {
        match self {
            Rules::HandOff(_) => true,
            #[cfg(feature = "redisson")]
            Rules::Redisson(_) => false,
        }
    }
}

impl Backend for RedisBackend {
    fn acquire(&self, asks: &[Acquire<'_>]) -> Vec<Result<Acquired, BackendError>> {
        self.ask_all(
            asks,
            |ask| by_rules!(self.0.rules(ask.place.lock)?, acquire(ask)),
            |ask, call, reply| {
                let answer = by_rules!(self.0.rules(ask.place.lock)?, acquired(ask, call, reply))?;
                Ok(self.0.wake_ups.acquired(&ask.place, answer))
            },
        )
    }

    fn release(&self, holds: &[Hold<'_>]) -> Vec<Result<Released, BackendError>> {
        self.ask_all(
            holds,
            |hold| by_rules!(self.0.rules(hold.lock)?, release(hold)),
            |hold, _, reply| by_rules!(self.0.rules(hold.lock)?, released(hold, &reply)),
        )
    }

    fn adopt(&self, hold: &Hold<'_>, owner: &OwnerId, lease: Duration) -> Result<Renewal, BackendError> {
        let call = by_rules!(self.0.rules(hold.lock)?, adopt(hold, owner, lease))?;
        reply::adopted(&Row::of(&self.0.scripts.run(&call)?)?)
    }

    /// Takes few round trips to each server: a script renews up to a hundred holds, or all places of a lock.
    fn renew(&self, _client: ClientId, items: &[Renew<'_>]) -> Vec<Result<Renewal, BackendError>> {
        let answers = self.0.renew(items);
        let mut is_heard = false;
        for (item, answer) in items.iter().zip(&answers) {
            let (Renew::Place { place, .. }, Ok(answer)) = (item, answer) else { continue };
            if !std::mem::replace(&mut is_heard, true) {
                self.0.wake_ups.heartbeat_answered(place); // all of them are of one client
            }
            if let (Renewal::Granted { .. }, Ok(rules)) = (answer, self.0.rules(place.lock)) {
                by_rules!(rules, stop_listening(place));
            }
        }
        answers
    }

    fn withdraw(&self, places: &[Place<'_>]) -> Vec<Result<Withdrawn, BackendError>> {
        self.ask_all(
            places,
            |place| by_rules!(self.0.rules(place.lock)?, withdraw(place)),
            |place, _, reply| {
                let rules = self.0.rules(place.lock)?;
                let answer = by_rules!(rules, withdrawn(place, &reply))?;
                by_rules!(rules, stop_listening(place));
                Ok(answer)
            },
        )
    }

    fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        by_rules!(self.0.rules(lock)?, force_release(lock))
    }

    fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        by_rules!(self.0.rules(hold.lock)?, take_hold(hold))
    }

    fn inspect(&self, lock: &LockId, part: Range<u64>) -> Result<LockState, BackendError> {
        /// A rank that is exact in Lua's doubles, and more places than core asks for, which the script reads by one command.
        const LAST: u64 = 1 << 50;
        const MOST: u64 = 10 * MOST_INSPECTED;
        let (from, many) = (part.start.min(LAST), part.end.saturating_sub(part.start).min(MOST));
        let examined = if part.is_empty() { 0 } else { MOST_INSPECTED };
        let look = Look { from, many, examined, kinds: Kinds::This };
        let reply = self.0.scripts.run(&by_rules!(self.0.fair, look(lock, &look))?)?;
        by_rules!(self.0.fair, seen(lock.kind, &reply))
    }

    fn subscribe(&self, client: ClientId, sink: Arc<dyn WakeSink>) -> Result<Subscription, BackendError> {
        self.0.wake_ups.subscribe(client, sink)
    }

    fn reconnects(&self) -> u64 {
        self.0.scripts.servers.settings().reconnects()
    }

    /// Several holders by the hand-off, plain locks with the feature `redisson`.
    fn supports(&self, kind: LockKind) -> bool {
        match kind {
            LockKind::Plain => self.0.plain.is_some(),
            _ => self.0.fair.have_shared() || !kind.is_shared(),
        }
    }

    fn keeps_only(&self) -> &'static str {
        match self.0.fair.have_shared() {
            true => NO_PLAIN,
            false => "discipline Redisson has fair and plain locks only",
        }
    }

    /// The server's own clock: it runs as the system's does.
    fn store_clock(&self) -> Option<Clock> {
        Some(Clock::system())
    }

    fn response_timeout(&self) -> Option<Duration> {
        Some(self.0.scripts.servers.timeouts().response)
    }

    /// The response time-out, 5 s, and one second more for clocks that drift. Each request carries its end by the server's clock,
    /// as far as the client knows that clock.
    fn attempt_ttl(&self) -> Option<Duration> {
        Some(attempt_ttl(self.0.scripts.servers.timeouts().response))
    }

    /// True for Redisson's queue.
    fn keeps_place_by_owner(&self, lock: &LockId) -> bool {
        lock.kind != LockKind::Plain && !self.0.fair.have_shared()
    }

    /// The limit of [`RedisBuilder::durable`](crate::RedisBuilder::durable).
    fn longest_lease(&self) -> Option<Duration> {
        self.0.calls.longest_lease()
    }

    fn why_no_longer_lease(&self) -> &'static str {
        "a server that has forgotten the hold could grant the lock before a longer one is over; shorten the lease, or raise \
         `Durability::trust` for all clients"
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("servers", &self.0.scripts.servers.to_string())
            .finish_non_exhaustive()
    }
}

/// The most holds in one script: no script keeps the server busy for long.
const MOST_HOLDS: usize = 100;
/// The most places in one script.
const MOST_PLACES: usize = 200;

type Answer = Result<Renewal, BackendError>;

/// A script, and the indices of the items that it renews: holds, or places of one lock.
struct Part<'a> {
    items: Vec<usize>,
    are_holds: bool,
    call: Result<ScriptCall<'a>, BackendError>,
}

impl Inner {
    /// # Errors
    /// `InvalidConfig` for a plain lock without the feature `redisson`.
    pub(crate) fn rules(&self, lock: &LockId) -> Result<&Rules, BackendError> {
        let none = || BackendError::new(BackendErrorKind::InvalidConfig, NO_PLAIN);
        if lock.kind == LockKind::Plain { self.plain.as_ref().ok_or_else(none) } else { Ok(&self.fair) }
    }

    /// The scripts that renew the watchdog's holds and places, and one answer for each item, in order.
    fn renew(&self, items: &[Renew<'_>]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = items.iter().map(|_| None).collect();
        let (mut holds, mut waiting) = (Vec::new(), HashMap::<_, Vec<_>>::new());
        for (at, item) in items.iter().enumerate() {
            match item {
                Renew::Hold { hold, holds: count, lease } => holds.push((at, hold, *count, *lease)),
                Renew::Place { place, lease } => {
                    waiting.entry(place.lock).or_default().push((at, (place, *lease)));
                }
            }
        }
        // The nodes of a cluster keep some of the locks each, and a script is about one slot.
        let most = if self.scripts.servers.is_one_server() { MOST_HOLDS } else { 1 };
        let mut parts = self.parts_of_holds(&holds, most);
        for (lock, places) in waiting {
            for chunk in places.chunks(MOST_PLACES) {
                let (items, places): (_, Vec<_>) = chunk.iter().copied().unzip();
                let call = self.rules(lock).and_then(|rules| by_rules!(rules, renew_places(lock, &places)));
                parts.push(Part { items, are_holds: false, call });
            }
        }
        let refused = self.renew_parts(parts, &mut answers);
        holds.retain(|(at, ..)| refused.contains(at));
        self.renew_parts(self.parts_of_holds(&holds, 1), &mut answers);
        let answer = |answer: Option<Answer>| answer.unwrap_or_else(|| Err(missing()));
        answers.into_iter().map(|row| answer(row).map(|row| self.wake_ups.renewed(row))).collect()
    }

    /// The scripts for holds, with their counts and leases.
    fn parts_of_holds<'a>(
        &self,
        holds: &[(usize, &'a Hold<'_>, u32, Duration)],
        most: usize,
    ) -> Vec<Part<'a>> {
        // Grouped by rules, by whether the locks have parts, by count and by lease.
        let mut alike: HashMap<_, Vec<(usize, &'a Hold<'_>)>> = HashMap::new();
        for &(at, hold, count, lease) in holds {
            if let Ok(rules) = self.rules(hold.lock) {
                by_rules!(rules, will_tell(count)); // if one has to, all do: before any call is built
            }
            let kind = hold.lock.kind;
            let alike_to = (kind == LockKind::Plain, kind.capacity() > 1, count, lease);
            alike.entry(alike_to).or_default().push((at, hold));
        }
        let mut parts = Vec::new();
        for ((_, _, count, lease), holds) in alike {
            for chunk in holds.chunks(most) {
                let (items, holds): (Vec<_>, Vec<&'a Hold<'_>>) = chunk.iter().copied().unzip();
                let rules = self.rules(holds[0].lock);
                let call = rules.and_then(|rules| by_rules!(rules, renew_holds(&holds, count, lease)));
                parts.push(Part { items, are_holds: true, call });
            }
        }
        parts
    }

    /// Runs the scripts and notes the answers. Returns the holds for which a script of many was refused: the script does not say
    /// why, so each of these holds is renewed alone.
    fn renew_parts(&self, parts: Vec<Part<'_>>, answers: &mut [Option<Answer>]) -> HashSet<usize> {
        let (mut calls, mut asked, mut refused) = (Vec::new(), Vec::new(), HashSet::new());
        let mut note = |of: Vec<usize>, are_holds, rows: Result<Vec<Option<Answer>>, CallFailure>| match rows
        {
            Ok(rows) => {
                for (at, row) in of.into_iter().zip(rows) {
                    if row.is_none() {
                        refused.insert(at);
                    }
                    answers[at] = row;
                }
            }
            Err(CallFailure { is_refusal: true, .. }) if are_holds && of.len() > 1 => refused.extend(of),
            Err(CallFailure { error, .. }) => {
                of.into_iter().for_each(|at| answers[at] = Some(Err(error.clone())));
            }
        };
        for Part { items, are_holds, call } in parts {
            match call {
                Ok(call) => {
                    calls.push(call);
                    asked.push((items, are_holds));
                }
                Err(error) => note(items, are_holds, Err(CallFailure { is_refusal: true, error })),
            }
        }
        let replies = self.scripts.run_all(&calls, Order::AtOnce);
        for ((of, are_holds), reply) in asked.into_iter().zip(replies) {
            let rows = reply.and_then(|reply| {
                let rows = match are_holds {
                    true => renewed_holds(&reply, of.len()),
                    false => renewed(&reply, of.len()),
                };
                rows.map_err(|error| CallFailure { is_refusal: false, error })
            });
            note(of, are_holds, rows);
        }
        refused
    }
}

#[cfg(test)]
mod tests;
