//! Locks that are shared with Java's Redisson: discipline `Redisson` with its fair locks, and plain locks.
//!
//! Both have one holder under its owner's name, and their waiters listen on Redisson's channels.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, BackendErrorKind, ForceReleased, Hold, Holder, LockId, LockState, Place,
    Released, Wait, Waiter, Wake, WakeSink, Withdrawn,
};
use fairlock_core::{LockKind, LockName, OwnerId};
use parking_lot::Mutex;
use redis::Value;

use crate::durable::Calls;
use crate::script::reply::{Row, items, number, rank, text, time, token, unintelligible, written};
use crate::script::scripts::Argument::{BeginBy, Channel, Number, Request, Text};
use crate::script::scripts::{Argument, Keys, condition, millis, redisson_queues};
use crate::script::{Look, ScriptCall, Scripts, foreign, reply, scripts};
use crate::wake_ups::{OtherChannels, WakeUps};

/// Redisson's rules, for fair and plain locks.
///
/// A fair lock has a queue that is shared with Java. Each waiter has its own channel, on which the releaser tells it to ask again. The
/// list holds the order; the sorted set holds the time at which each waiter counts as dead, and heartbeats keep our own entries alive in
/// it. A plain lock, as Redisson's `RedissonLock`, has no queue, and one channel for all waiters.
#[derive(Clone)]
pub(crate) struct Redisson {
    scripts: Arc<Scripts>,
    calls: Arc<Calls>,
    wake_ups: Arc<WakeUps>,
    channels: Arc<Channels>,
    /// How long places in the queue last.
    thread_wait: Duration,
}

/// Names the hold in a script's arguments.
fn named<'a>(hold: &'a Hold<'_>) -> [Argument<'a>; 3] {
    [Text(hold.owner.as_str()), Request(hold.request), Number(hold.token.get())]
}

impl Redisson {
    pub(crate) fn new(
        scripts: &Arc<Scripts>,
        calls: &Arc<Calls>,
        wake_ups: &Arc<WakeUps>,
        channels: Arc<Channels>,
        thread_wait: Duration,
    ) -> Redisson {
        let (scripts, calls, wake_ups) = (Arc::clone(scripts), Arc::clone(calls), Arc::clone(wake_ups));
        Redisson { scripts, calls, wake_ups, channels, thread_wait }
    }

    /// How long a place lasts: as long as its caller waits, or for the thread wait. A plain lock has no places.
    fn time_of(&self, place: &Place<'_>) -> Duration {
        match (place.lock.kind, place.wait) {
            (LockKind::Plain, _) => Duration::ZERO,
            (_, Wait::UpTo(time)) => time,
            _ => self.thread_wait,
        }
    }

    fn answer(&self, place: &Place<'_>, reply: &Value) -> Result<Acquired, BackendError> {
        let row = Row::of(reply)?;
        let name = &place.lock.name;
        if row.word == "queued"
            && row.at(3, number)? != 0
            && is_news(&mut LOGGED.lock(), name, Instant::now())
        {
            log::warn!(
                target: "fairlock::acquire",
                event = "repaired", lock = name.as_str(), owner = place.owner.as_str();
                "lock {name}: queue and timeouts at {} disagreed about {}: repaired, and put at the tail",
                self.scripts.servers,
                place.owner
            );
        }
        reply::acquired(&row)
    }

    pub(crate) fn acquire<'a>(&self, ask: &'a Acquire<'_>) -> Result<ScriptCall<'a>, BackendError> {
        let place = &ask.place;
        self.calls.check(place.lock, ask.lease, &self.scripts.servers)?;
        let mut arguments = vec![
            Text(place.owner.as_str()),
            Request(place.request),
            Number(millis(ask.lease)),
            Number(millis(self.time_of(place))),
            Number(millis(place.ttl)),
            Text(mode(place)),
            Channel,
            Text(ask.label),
            BeginBy,
        ];
        arguments.extend(condition(ask));
        self.scripts.call(&scripts::REDISSON_ACQUIRE, [place.lock], arguments)
    }

    /// A waiter that was not yet subscribed to its channel is subscribed now, and asks once more.
    pub(crate) fn acquired(
        &self,
        ask: &Acquire<'_>,
        call: &ScriptCall<'_>,
        reply: Value,
    ) -> Result<Acquired, BackendError> {
        let place = &ask.place;
        let mut answer = self.answer(place, &reply)?;
        let is_over = |answer| matches!(answer, Acquired::Granted { .. } | Acquired::Declined(_));
        if place.wait != Wait::No && !is_over(answer) {
            let keys = self.scripts.keys.of(place.lock)?;
            match self.channels.listen(&self.wake_ups, place, || channel(place, &keys))? {
                Subscribed::Before => return Ok(answer),
                Subscribed::JustNow => answer = self.answer(place, &self.scripts.run(call)?)?,
            }
        }
        if is_over(answer) {
            self.stop_listening(place);
        }
        Ok(answer)
    }

    pub(crate) fn release<'a>(&self, hold: &'a Hold<'_>) -> Result<ScriptCall<'a>, BackendError> {
        let arguments = [&named(hold)[..], &[Channel]].concat();
        self.scripts.call(&scripts::REDISSON_RELEASE, [hold.lock], arguments)
    }

    pub(crate) fn adopt<'a>(
        &self,
        hold: &'a Hold<'_>,
        owner: &'a OwnerId,
        lease: Duration,
    ) -> Result<ScriptCall<'a>, BackendError> {
        self.calls.check(hold.lock, lease, &self.scripts.servers)?;
        let rest = [Text(owner.as_str()), Number(millis(lease)), Channel];
        let arguments = [&named(hold)[..], &rest].concat();
        self.scripts.call(&scripts::REDISSON_ADOPT, [hold.lock], arguments)
    }

    pub(crate) fn renew_holds<'a>(
        &self,
        holds: &[&'a Hold<'_>],
        count: u32,
        lease: Duration,
    ) -> Result<ScriptCall<'a>, BackendError> {
        let mut arguments = vec![Number(count.into()), Number(millis(lease))];
        holds.iter().for_each(|hold| arguments.extend(named(hold)));
        self.scripts.call(&scripts::REDISSON_RENEW_HOLDS, holds.iter().map(|hold| hold.lock), arguments)
    }

    pub(crate) fn renew_places<'a>(
        &self,
        lock: &LockId,
        places: &[(&'a Place<'_>, Duration)],
    ) -> Result<ScriptCall<'a>, BackendError> {
        let mut arguments: Vec<Argument<'_>> = vec![Channel];
        for (place, lease) in places {
            let (owner, time) = (Text(place.owner.as_str()), Number(millis(self.time_of(place))));
            arguments.extend([owner, Request(place.request), time, Number(millis(*lease))]);
        }
        self.scripts.call(&scripts::REDISSON_RENEW, [lock], arguments)
    }

    pub(crate) fn released(&self, _: &Hold<'_>, reply: &Value) -> Result<Released, BackendError> {
        reply::released(&Row::of(reply)?)
    }

    pub(crate) fn withdrawn(&self, _: &Place<'_>, reply: &Value) -> Result<Withdrawn, BackendError> {
        reply::withdrawn(&Row::of(reply)?)
    }

    /// Its renewals tell each count.
    pub(crate) fn will_tell(&self, _: u32) {}

    pub(crate) fn withdraw<'a>(&self, place: &'a Place<'_>) -> Result<ScriptCall<'a>, BackendError> {
        let arguments = [
            Text(place.owner.as_str()),
            Request(place.request),
            Number(millis(self.time_of(place))),
            Number(millis(place.ttl)),
            Channel,
            BeginBy,
        ];
        self.scripts.call(&scripts::REDISSON_WITHDRAW, [place.lock], arguments)
    }

    /// Notes that the place's owner waits no longer.
    pub(crate) fn stop_listening(&self, place: &Place<'_>) {
        self.channels.stop_listening(&self.wake_ups, place);
    }

    pub(crate) fn force_release(&self, lock: &LockId) -> Result<ForceReleased, BackendError> {
        let call = self.scripts.call(&scripts::REDISSON_FORCE_RELEASE, [lock], [Channel, BeginBy])?;
        reply::force_released(&Row::of(&self.scripts.run(&call)?)?)
    }

    pub(crate) fn take_hold(&self, hold: &Hold<'_>) -> Result<ForceReleased, BackendError> {
        let reply = self.scripts.run(&self.release(hold)?)?;
        self.released(hold, &reply).map(ForceReleased::from)
    }
}

/// How a request asks: `once` without a place.
fn mode(place: &Place<'_>) -> &'static str {
    if place.lock.kind == LockKind::Plain || place.wait == Wait::No { "once" } else { "wait" }
}

/// The channel on which this waiter is told to ask again.
fn channel(place: &Place<'_>, keys: &Keys) -> String {
    match place.lock.kind {
        LockKind::Plain => keys.channel().to_owned(),
        _ => format!("{}:{}", keys.channel(), place.owner),
    }
}

/// The locks whose repairs were logged in the last minute: one line for each, and for no more than [`MOST_LOGGED`].
static LOGGED: Mutex<Vec<(LockName, Instant)>> = Mutex::new(Vec::new());
const MOST_LOGGED: usize = 16;
const MINUTE: Duration = Duration::from_secs(60);

/// Whether a repair of this lock's queue is worth a line in the log.
fn is_news(logged: &mut Vec<(LockName, Instant)>, lock: &LockName, now: Instant) -> bool {
    logged.retain(|(_, at)| now.saturating_duration_since(*at) < MINUTE);
    let is_news = logged.len() < MOST_LOGGED && logged.iter().all(|(known, _)| known != lock);
    if is_news {
        logged.push((lock.clone(), now));
    }
    is_news
}

impl Redisson {
    pub(crate) fn look(&self, lock: &LockId, at: &Look) -> Result<ScriptCall<'static>, BackendError> {
        let arguments = [at.from, at.many, at.examined].map(Argument::Number);
        self.scripts.call(&scripts::INSPECT, [lock], arguments)
    }

    pub(crate) fn seen(&self, _: LockKind, reply: &Value) -> Result<LockState, BackendError> {
        let row = Row::of(reply)?;
        let mut state = LockState::default();
        // A field that can't be read was written neither by fairlock nor by Redisson.
        let holder = holder(&row);
        let holder =
            holder.map_err(|_| foreign(&self.scripts.servers, "the holder can't be read", "inspect"))?;
        state.holders = holder.into_iter().collect();
        (state.queue_length, state.absent) = (row.at(2, rank)?, row.at(3, rank)?);
        state.queue = row.at(4, items)?.iter().map(waiter).collect::<Result<_, _>>()?;
        Ok(state)
    }

    pub(crate) fn keys_like(&self, pattern: &str) -> (Vec<String>, &'static str) {
        (redisson_queues(pattern).to_vec(), "list")
    }

    pub(crate) fn needed<'k>(&self, keys: &'k Keys, _: &'k str) -> [Vec<Vec<&'k str>>; 2] {
        let (timeouts, queue) = (keys.timeouts(), keys.queue());
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

/// Owner, and the rest of its time.
fn waiter(row: &Value) -> Result<Waiter, BackendError> {
    let [owner, left] = items(row)? else { return Err(unintelligible(row)) };
    let mut waiter = Waiter::new(OwnerId::new(&written(owner)?));
    waiter.place_left = time(left)?;
    Ok(waiter)
}

/// The first two items of the reply: the holder, and the lease left.
fn holder(row: &Row<'_>) -> Result<Option<Holder>, BackendError> {
    let [owner, count, grant @ ..] = row.at(0, items)? else { return Ok(None) };
    let count = u32::try_from(number(count)?).map_err(|_| row.unexpected())?;
    let mut holder = Holder::new(OwnerId::new(&written(owner)?), count);
    holder.lease_left = row.at(1, time)?;
    if let [fencing_token, label, held] = grant {
        holder.token = Some(token(fencing_token)?);
        holder.held_for = text(held)?.parse().ok().map(Duration::from_millis);
        holder.set_label(&written(label)?);
    }
    Ok(Some(holder))
}

/// Which waiter of a backend listens on which of Redisson's channels: each waiter of a fair lock on its own, all waiters of a plain lock on
/// one.
#[derive(Default)]
pub(crate) struct Channels(Mutex<Listening>);

#[derive(Default)]
struct Listening {
    channels: HashMap<Listener, String>,
    waiters: HashMap<String, Vec<Listener>>,
}

/// A waiter that has a channel.
type Listener = (LockName, OwnerId);

fn listener(place: &Place<'_>) -> Listener {
    (place.lock.name.clone(), place.owner.clone())
}

/// Whether the waiter's channel was subscribed when its question was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscribed {
    Before,
    /// A release between the answer and the subscription woke no waiter, so the caller has to ask again.
    JustNow,
}

impl Channels {
    /// Subscribes the place's owner to `channel`, until [`stop_listening`](Self::stop_listening). Blocks until the
    /// server has confirmed it.
    fn listen(
        &self,
        wake_ups: &WakeUps,
        place: &Place<'_>,
        channel: impl FnOnce() -> String,
    ) -> Result<Subscribed, BackendError> {
        // A client without a subscription has no wake-ups to wait for.
        let Some(client) = wake_ups.client(place) else { return Ok(Subscribed::Before) };
        let waiter = listener(place);
        if self.0.lock().channels.contains_key(&waiter) {
            return Ok(Subscribed::Before);
        }
        let channel = channel();
        // Noted before the subscription, so that a message that comes at once finds the waiter.
        self.0.lock().add(waiter.clone(), &channel);
        // To the lock's own server, which has just answered; a cluster passes it on to the subscriber's node.
        let nudge = |nudge: Vec<u8>| {
            let sent = wake_ups
                .scripts
                .servers
                .call(place.lock.name.as_str(), |route| route.pool.call(nudge.as_slice()));
            sent.map_err(|failed| failed.failure)
        };
        let Err(failure) = client.subscriber.want(&channel, nudge) else { return Ok(Subscribed::JustNow) };
        self.0.lock().remove(&waiter);
        let error = failure.explain(&wake_ups.scripts.servers, "subscribing to the lock's channel");
        if error.kind() == BackendErrorKind::Denied {
            return Err(error);
        }
        // Heartbeats keep the place meanwhile, and the next attempt subscribes again.
        log::debug!(
            target: "fairlock::wake",
            event = "no wake-ups", lock = place.lock.name.as_str(), error:% = error;
            "lock {}: no wake-ups yet: {error}", place.lock.name
        );
        Ok(Subscribed::Before)
    }

    /// The place's owner waits no longer.
    fn stop_listening(&self, wake_ups: &WakeUps, place: &Place<'_>) {
        let channel = self.0.lock().remove(&listener(place));
        if let (Some(channel), Some(client)) = (channel, wake_ups.client(place)) {
            client.subscriber.unwant(&channel);
        }
    }
}

impl OtherChannels for Channels {
    /// Wakes a waiter of this client that listens on the channel: one waiter, even if several share the channel.
    fn receive(&self, client: &str, channel: &[u8], payload: &[u8], sink: &dyn WakeSink) {
        // Redisson's word for "released". Other payloads are for other kinds of locks.
        let (b"0", Ok(channel)) = (payload, std::str::from_utf8(channel)) else { return };
        let (found, is_alone) = {
            let waiting = self.0.lock();
            let Some(waiters) = waiting.waiters.get(channel) else { return };
            let mut own = waiters.iter().filter(|(_, owner)| owner.client() == client);
            let Some(found) = own.next().cloned() else { return };
            (found, own.next().is_none())
        };
        let (lock, owner) = found;
        sink.wake(Wake::Recheck { lock: lock.as_str(), owner: is_alone.then_some(owner.as_str()) });
    }

    fn forget(&self, client: &str) {
        let mut waiting = self.0.lock();
        let of_client: Vec<Listener> =
            waiting.channels.keys().filter(|(_, owner)| owner.client() == client).cloned().collect();
        of_client.iter().for_each(|waiter| drop(waiting.remove(waiter)));
    }
}

impl Listening {
    fn add(&mut self, waiter: Listener, channel: &str) {
        self.waiters.entry(channel.to_owned()).or_default().push(waiter.clone());
        self.channels.insert(waiter, channel.to_owned());
    }

    fn remove(&mut self, waiter: &Listener) -> Option<String> {
        let channel = self.channels.remove(waiter)?;
        if let Some(waiters) = self.waiters.get_mut(&channel) {
            waiters.retain(|other| other != waiter);
            if waiters.is_empty() {
                self.waiters.remove(&channel);
            }
        }
        Some(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{RedisBackend, Rules, by_rules};
    use crate::builder::{Discipline, RedisBuilder};
    use crate::fake_backend::{LEASE, RecordedWakeUps, bulk, id, of, owner, place, with};
    use crate::script::Kinds;
    use fairlock_core::FencingToken;
    use fairlock_core::backend::{Backend, only};

    const THREAD_WAIT: Duration = Duration::from_secs(300);
    const CHANNEL: &str = "redisson_lock__channel:{a}";
    const REQUEST: &str = "000000000000001f";

    fn backend() -> RedisBackend {
        with(Discipline::Redisson, |_, _| String::new()).0
    }

    /// {state, holder, lease left, length of the queue, absent, queue}
    fn reply(holder: Vec<Value>, queue: Vec<Value>) -> Value {
        let numbers = [1500, 4, 1].map(Value::Int);
        let items = [bulk("state"), Value::Array(holder)].into_iter().chain(numbers);
        Value::Array(items.chain([Value::Array(queue)]).collect())
    }

    #[test]
    fn repairs_are_a_line_a_minute_for_each_lock_and_for_few_locks() {
        let (start, mut logged) = (Instant::now(), Vec::new());
        let mut is_news = |n: usize, at| {
            super::is_news(&mut logged, &LockName::new(&format!("repaired:{n}")).unwrap(), start + at)
        };
        let second = Duration::from_secs(1);
        assert_eq!([is_news(0, second), is_news(0, 2 * second), is_news(1, 3 * second)], [true, false, true]);
        let news = (0..100).filter(|n| is_news(*n, 4 * second)).count();
        assert_eq!(news, MOST_LOGGED - 2);
        assert!(is_news(0, 61 * second));
    }

    /// An attempt says how long its place lasts, and whether the attempt is repeated.
    #[test]
    fn an_attempt_tells_the_life_of_its_place() {
        for (kind, wait, time, mode) in [
            (LockKind::Fair, Wait::No, "300000", "once"),
            (LockKind::Fair, Wait::Forever, "300000", "wait"),
            (LockKind::Fair, Wait::UpTo(Duration::from_secs(2)), "2000", "wait"),
            (LockKind::Plain, Wait::Forever, "1", "once"),
        ] {
            let build =
                |builder: RedisBuilder| builder.discipline(Discipline::Redisson).thread_wait(THREAD_WAIT);
            let (backend, ran) = of(build, |_, _| "*0\r\n".to_owned());
            let (lock, owner) = (id(kind), owner());
            let mut place = place(&lock, &owner);
            (place.ttl, place.wait) = (Duration::from_secs(9), wait);
            let mut ask = Acquire::new(place, LEASE);
            ask.label = "nightly";
            let Rules::Redisson(rules) = backend.0.rules(&lock).unwrap() else { panic!("other rules") };
            let renewal = rules.renew_places(&lock, &[(&place, LEASE)]);
            for call in [rules.acquire(&ask), renewal, rules.withdraw(&place)] {
                backend.0.scripts.run(&call.unwrap()).unwrap();
            }
            let mut sent = ran.lock().iter().map(|ran| ran.arguments.clone()).collect::<Vec<_>>();
            // The end of an attempt is the server's time.
            assert_eq!([0, 2].map(|at| sent[at].pop().unwrap().len()), [16; 2]);
            let asked = vec!["u:1", REQUEST, "30000", time, "9000", mode, CHANNEL, "nightly"];
            let renewed = vec![CHANNEL, "u:1", REQUEST, time, "30000"];
            assert_eq!(sent, [asked, renewed, vec!["u:1", REQUEST, time, "9000", CHANNEL]]);
        }
        let (lock, owner) = (id(LockKind::Fair), owner());
        let channel = channel(&place(&lock, &owner), &Keys::of(&lock).unwrap());
        assert_eq!(channel, format!("{CHANNEL}:u:1"));
    }

    /// Redisson's queue has fair locks, and finds places by their owners.
    #[test]
    fn redissons_queue_has_fair_locks_and_places_by_owner() {
        let kinds =
            [LockKind::Fair, LockKind::Plain, LockKind::ReadWrite, LockKind::Semaphore { permits: 1 }];
        let (redisson, ours) = (backend(), with(Discipline::HandOff, |_, _| String::new()).0);
        assert_eq!(kinds.map(|kind| redisson.supports(kind)), [true, true, false, false]);
        assert_eq!(redisson.keeps_only(), "discipline Redisson has fair and plain locks only");
        let by_owner = |backend: &RedisBackend, kind| backend.keeps_place_by_owner(&id(kind));
        assert!(by_owner(&redisson, LockKind::Fair) && !by_owner(&redisson, LockKind::Plain));
        assert!(!by_owner(&ours, LockKind::Fair));
    }

    #[test]
    fn an_answer_of_the_queue_tells_whether_it_was_repaired() {
        let answer = |reply: &'static str| {
            let (backend, _) = with(Discipline::Redisson, move |_, _| reply.to_owned());
            only(backend.acquire(&[Acquire::new(place(&id(LockKind::Fair), &owner()), LEASE)])).ok()
        };
        let granted = Acquired::Granted { token: FencingToken::new(7), lease: LEASE };
        assert_eq!(answer("*3\r\n+granted\r\n:7\r\n:30000\r\n"), Some(granted));
        let recheck_in = Duration::from_millis(500);
        let queued = Acquired::Queued { rank: 2, recheck_in, ticket: 0, latest: 0 };
        assert_eq!(answer("*5\r\n+queued\r\n:2\r\n:500\r\n:0\r\n:0\r\n"), Some(queued));
        assert_eq!(answer("*4\r\n+queued\r\n:2\r\n:500\r\n:0\r\n"), None, "it does not tell");
    }

    #[test]
    fn a_look_shows_the_holder_and_the_queue() {
        let seen = |holder, queue| by_rules!(backend().0.fair, seen(LockKind::Fair, &reply(holder, queue)));
        let of_java = vec![bulk("u:1"), Value::Int(2)];
        let waiters = [("v:1", 700), ("v:2", -1)];
        let waiters = waiters.map(|(owner, left)| Value::Array(vec![bulk(owner), Value::Int(left)]));
        let state = seen(of_java.clone(), waiters.to_vec()).unwrap();
        let holder = state.holder().unwrap();
        assert_eq!((holder.owner.as_str(), holder.hold_count, holder.token), ("u:1", 2, None));
        assert_eq!(holder.lease_left, Some(Duration::from_millis(1500)));
        assert_eq!((state.queue_length, state.absent), (4, 1));
        let queue: Vec<_> =
            state.queue.iter().map(|waiter| (waiter.owner.as_str(), waiter.place_left)).collect();
        assert_eq!(queue, [("v:1", Some(Duration::from_millis(700))), ("v:2", None)]);
        let grant = |label: &str| {
            let ours = [of_java.clone(), vec![bulk("7"), bulk(label), bulk("250")]].concat();
            let holder = seen(ours, Vec::new()).unwrap().holder().cloned().unwrap();
            (holder.token, holder.held_for, holder.label)
        };
        let (token, held_for) = (Some(FencingToken::new(7)), Some(Duration::from_millis(250)));
        assert_eq!(grant("nightly"), (token, held_for, Some("nightly".to_owned())));
        assert_eq!(grant(""), (token, held_for, None));
        assert!(seen(Vec::new(), Vec::new()).unwrap().holder().is_none());
        let foreign = seen(vec![bulk("x"), bulk("y")], Vec::new()).unwrap_err();
        assert_eq!(foreign.kind(), BackendErrorKind::Corrupt);
    }

    #[test]
    fn the_queue_is_found_by_its_key_and_needs_the_rights_to_it() {
        let (backend, lock) = (backend(), id(LockKind::Fair));
        assert_eq!(by_rules!(backend.0.fair, keys_like("a*")), (redisson_queues("a*").to_vec(), "list"));
        let keys = Keys::of(&lock).unwrap();
        let [all, of_several] = by_rules!(backend.0.fair, needed(&keys, ""));
        let on = |key: &str| all.iter().filter(|words| words[1] == key).count();
        assert_eq!([on("redisson_lock_timeout:{a}"), on("redisson_lock_queue:{a}")], [5, 7]);
        assert!(of_several.is_empty());
    }

    #[test]
    fn a_look_names_the_part_of_the_queue() {
        let empty = "*6\r\n+state\r\n*0\r\n:-1\r\n:0\r\n:0\r\n*0\r\n";
        let (backend, ran) = with(Discipline::Redisson, |_, _| empty.to_owned());
        let at = Look { from: 5, many: 6, examined: 7, kinds: Kinds::This };
        let call = by_rules!(backend.0.fair, look(&id(LockKind::Fair), &at));
        backend.0.scripts.run(&call.unwrap()).unwrap();
        assert_eq!(ran.lock()[0].arguments, ["5", "6", "7"]);
    }

    /// A plain lock has one channel, and neither a queue nor a time to wait.
    #[test]
    fn a_plain_lock_has_one_channel_and_no_queue() {
        let (lock, owner) = (id(LockKind::Plain), owner());
        let (keys, place) = (Keys::of(&lock).unwrap(), place(&lock, &owner));
        assert_eq!((channel(&place, &keys), mode(&place)), (CHANNEL.to_owned(), "once"));
    }

    fn listener(lock: &str, owner: &str) -> Listener {
        (LockName::new(lock).unwrap(), OwnerId::new(owner))
    }

    /// What a client is told of a message on this channel.
    fn told(channels: &Channels, client: &str, channel: &str, payload: &str) -> Vec<String> {
        let told = RecordedWakeUps::default();
        channels.receive(client, channel.as_bytes(), payload.as_bytes(), &told);
        told.0.into_inner()
    }

    fn recheck(owner: Option<&str>) -> Vec<String> {
        vec![format!("{:?}", Wake::Recheck { lock: "a", owner })]
    }

    #[test]
    fn a_release_wakes_the_waiters_of_the_client_that_hears_of_it() {
        let channels = Channels::default();
        for owner in ["u:1", "v:1", "v:2"] {
            channels.0.lock().add(listener("a", owner), "shared");
        }
        assert_eq!(told(&channels, "u", "shared", "0"), recheck(Some("u:1")));
        assert_eq!(told(&channels, "v", "shared", "0"), recheck(None), "one of two");
        let nothing = [("w", "shared", "0"), ("u", "other", "0"), ("u", "shared", "1")];
        for (client, channel, payload) in nothing {
            assert_eq!(told(&channels, client, channel, payload), [""; 0], "{client} {channel} {payload}");
        }
    }

    #[test]
    fn a_channel_is_forgotten_with_its_last_waiter() {
        let channels = Channels::default();
        let [first, second] = ["u:1", "u:2"].map(|owner| listener("a", owner));
        channels.0.lock().add(first.clone(), "shared");
        channels.0.lock().add(second.clone(), "shared");
        assert_eq!(channels.0.lock().remove(&first).as_deref(), Some("shared"));
        assert_eq!(channels.0.lock().remove(&first), None);
        assert_eq!(told(&channels, "u", "shared", "0"), recheck(Some("u:2")));
        channels.0.lock().remove(&second);
        assert!(channels.0.lock().waiters.is_empty());
    }

    #[test]
    fn the_waiters_of_a_client_that_left_are_forgotten() {
        let channels = Channels::default();
        for owner in ["u:1", "u:2", "v:1"] {
            channels.0.lock().add(listener("a", owner), "shared");
        }
        channels.forget("u");
        assert_eq!(told(&channels, "u", "shared", "0"), [""; 0]);
        assert_eq!(told(&channels, "v", "shared", "0"), recheck(Some("v:1")));
        assert_eq!(channels.0.lock().channels.len(), 1);
    }
}
