//! The clients of this process: how each gets a message, where they listen; and what the callers of a client share with the thread that
//! listens for the client: how far that thread is, and which requests wait.
//!
//! A client's presence is shown by a number: the client's listening session holds the advisory lock of this number, and the number is the
//! name of its channel. Two clients with one number would do little harm: messages name their owner.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Place, RequestId, WakeSink};
use fairlock_core::{LockName, OwnerId};
use fairlock_rules::{WakeUp, WakeUpKind};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::net::address::Address;

/// How a process hears that a lock was granted to it by another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeUps {
    /// By LISTEN. A client opens a connection for this with its first request that has to wait, and closes the connection 30 s
    /// after the last wait. If LISTEN does not work, as behind a pooler in transaction mode, a warning says so, and the client
    /// polls every 20 ms. The client tries LISTEN again, less and less often.
    #[default]
    Listen,
    /// By polling: one statement looks at all locks that the client waits for, once in this time, from 1 ms to 1 min.
    ///
    /// No session shows that the process is alive. So a dead waiter delays the others by one place TTL, and is not passed over at
    /// once. A hold that was taken by force is found lost by its next renewal.
    Poll(Duration),
}

/// The clients of this process.
pub(crate) struct Clients {
    all: RwLock<HashMap<String, Arc<Client>>>,
    /// Where they listen.
    pub(crate) listen_at: Address,
    /// How they hear of grants.
    pub(crate) wake_ups: WakeUps,
    deaf: Mutex<Option<Deaf>>,
}

/// Whether a message of this process to itself was not heard: then the clients of the process poll.
struct Deaf {
    /// The pause until the next message is sent.
    until: Instant,
    pause: Duration,
}

/// The first and the longest pause before another message to itself: behind a pooler no message comes. Short in tests.
const TRIED_AGAIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
const LONGEST: Duration = Duration::from_secs(600);

pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn WakeSink>,
    pub(crate) link: Arc<Link>,
}

impl Clients {
    pub(crate) fn new(listen_at: Address, wake_ups: WakeUps) -> Clients {
        Clients { all: RwLock::default(), listen_at, wake_ups, deaf: Mutex::default() }
    }

    /// Until when the clients poll, since a message was not heard.
    pub(crate) fn deaf_until(&self) -> Option<Instant> {
        self.deaf.lock().as_ref().map(|deaf| deaf.until)
    }

    /// A message was not heard: the clients poll for a pause, which doubles each time. Returns whether that is new.
    pub(crate) fn poll_for_a_while(&self) -> bool {
        let mut deaf = self.deaf.lock();
        let pause = deaf.as_ref().map_or(TRIED_AGAIN, |deaf| (deaf.pause * 2).min(LONGEST));
        deaf.replace(Deaf { until: Instant::now() + pause, pause }).is_none()
    }

    /// A message was heard: the clients poll no longer.
    pub(crate) fn listen_again(&self) {
        *self.deaf.lock() = None;
    }

    pub(crate) fn add(&self, name: &str, sink: Arc<dyn WakeSink>) {
        let client = Arc::new(Client { name: name.to_owned(), sink, link: Arc::default() });
        let former = self.all.write().insert(name.to_owned(), client);
        if let Some(former) = former {
            former.link.set(Phase::Over);
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        let client = self.all.write().remove(name);
        if let Some(client) = client {
            client.link.set(Phase::Over);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Client>> {
        self.all.read().get(name).cloned()
    }

    /// `Some(visible)` for a client of this process: whether other processes can see its presence. `None` for a client of another
    /// process.
    pub(crate) fn is_present(&self, name: &str) -> Option<bool> {
        self.all.read().get(name).map(|client| client.link.is_present())
    }

    /// Tells a client if it is of this process.
    pub(crate) fn deliver(&self, wake_up: &WakeUp) {
        if let Some(client) = self.get(wake_up.owner.client()) {
            client.hear(wake_up);
        }
    }

    /// The request waits no longer.
    pub(crate) fn waits_no_longer(&self, place: &Place<'_>) {
        if let Some(client) = self.get(place.owner.client()) {
            client.link.waits_no_longer(&Waiting::of(place));
        }
    }
}

impl Client {
    /// Has the client hear a message, whether a request waits or not.
    pub(crate) fn hear(&self, wake_up: &WakeUp) {
        if let WakeUpKind::Granted { request, .. } = wake_up.kind {
            let (lock, owner) = (wake_up.lock.clone(), wake_up.owner.clone());
            self.link.waits_no_longer(&Waiting { lock, owner, request });
        }
        self.sink.wake(wake_up.as_wake());
    }
}

/// For how long a client goes on hearing when none of its requests waits. Short in tests, so that they see the end, yet longer than a busy
/// machine stands still: a case about messages to a holder has its client wait once before.
const LINGERS: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });

/// How far the thread is: see `wake_ups`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no thread.
    #[default]
    Silent,
    Starting,
    Hearing,
    Broken,
    Polling,
    Over,
}

/// A request that waits, as its backend knows it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) lock: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
}

#[derive(Default)]
pub(crate) struct Link {
    state: Mutex<LinkState>,
    changed: Condvar,
}

#[derive(Default)]
struct LinkState {
    phase: Phase,
    /// The number of the listening connection: one more with each connection.
    session: u64,
    /// Whether other processes see the client's presence by that connection.
    is_present: bool,
    /// Whether a grant of a request that waits may have gone unheard.
    has_missed: bool,
    waiting: HashMap<Waiting, Known>,
    /// When the last request was known to wait; none before the first.
    waited_at: Option<Instant>,
}

/// What is known of a waiting request.
struct Known {
    /// When the place ends if no heartbeat comes.
    until: Instant,
    /// The revision of the row in which a poll has not found its grant. A grant may stand in the row before the request is known to
    /// wait, so this is not known by lock.
    seen: i64,
}

impl Waiting {
    pub(crate) fn of(place: &Place<'_>) -> Waiting {
        let Place { lock, owner, request, .. } = *place;
        Waiting { lock: lock.name.clone(), owner: owner.clone(), request }
    }
}

impl Link {
    /// The connection that hears now, if one does.
    pub(crate) fn session(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.phase == Phase::Hearing).then_some(state.session)
    }

    pub(crate) fn is_present(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Hearing && state.is_present
    }

    /// The request waits. Starts the thread if there is none, and waits until the thread has started. Returns the connection that
    /// gets messages from now on. None if there is no such connection yet: later the thread sends `Gap`, or polls.
    pub(crate) fn waits(
        &self,
        place: &Place<'_>,
        until: Instant,
        start: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let known = state.waiting.entry(Waiting::of(place)).or_insert(Known { until: now, seen: -1 });
        known.until = now.checked_add(place.ttl).unwrap_or(now);
        state.waited_at = Some(now);
        if state.phase == Phase::Silent {
            state.phase = Phase::Starting;
            if !start() {
                state.phase = Phase::Silent;
            }
        }
        while state.phase == Phase::Starting {
            if self.changed.wait_until(&mut state, until).timed_out() {
                state.has_missed = true;
                break;
            }
        }
        (state.phase == Phase::Hearing).then_some(state.session)
    }

    /// The request waits no longer. Returns whether it was known to wait.
    pub(crate) fn waits_no_longer(&self, waiting: &Waiting) -> bool {
        self.state.lock().waiting.remove(waiting).is_some()
    }

    /// The requests that wait, each with the revision that was seen of its lock.
    pub(crate) fn waiting(&self) -> Vec<(Waiting, i64)> {
        self.state.lock().waiting.iter().map(|(one, known)| (one.clone(), known.seen)).collect()
    }

    /// The request waits in this revision of the row.
    pub(crate) fn saw(&self, waiting: &Waiting, rev: i64) {
        if let Some(known) = self.state.lock().waiting.get_mut(waiting) {
            known.seen = rev;
        }
    }

    /// Moves to another state, unless the link is over. Returns whether it has moved.
    pub(crate) fn set(&self, next: Phase) -> bool {
        let mut state = self.state.lock();
        if state.phase == Phase::Over {
            return false;
        }
        state.phase = next;
        state.has_missed |= next == Phase::Broken;
        self.changed.notify_all();
        true
    }

    /// The thread hears by a new connection. Returns whether messages may have been missed; none if the link is over.
    pub(crate) fn hears(&self, is_present: bool) -> Option<bool> {
        let mut state = self.state.lock();
        if state.phase == Phase::Over {
            return None;
        }
        state.has_missed |= state.phase == Phase::Polling; // what came between the last look and here
        (state.phase, state.is_present) = (Phase::Hearing, is_present);
        state.session += 1;
        self.changed.notify_all();
        Some(std::mem::take(&mut state.has_missed))
    }

    /// The connection that hears shows by now that the client is there.
    pub(crate) fn set_present(&self) {
        self.state.lock().is_present = true;
    }

    /// Whether the thread has to end, which must do nothing more here: it is over, or nothing has waited for a while. In the latter
    /// case the next request that waits starts another thread.
    pub(crate) fn has_to_end(&self) -> bool {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.waiting.retain(|_, known| now < known.until);
        if !state.waiting.is_empty() {
            state.waited_at = Some(now);
        }
        let has_lingered = state.waited_at.is_none_or(|at| now.duration_since(at) >= LINGERS);
        if state.phase != Phase::Over && has_lingered {
            state.phase = Phase::Silent;
            state.has_missed = false;
            return true;
        }
        state.phase == Phase::Over
    }

    /// Waits for this time; ends at once when the link is over.
    pub(crate) fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while state.phase != Phase::Over && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

/// The key of a client's presence: FNV-1a of 64 bits; part of the layout, so it must not change.
pub(crate) fn key_of(client: &str) -> i64 {
    let hash = client.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

/// Where the client listens.
pub(crate) fn channel_of(client: &str) -> String {
    format!("fl_{:016x}", key_of(client))
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "servers")]
    use fairlock_tests::eventually;

    use super::*;
    use crate::test_values::lock;

    /// The request of an owner, with a place that is over at once.
    fn waits(link: &Link) -> Option<u64> {
        let (lock, owner) = (lock("x"), OwnerId::new("a:1"));
        let mut place = Place::new(&lock, &owner, RequestId::new(1));
        place.ttl = Duration::ZERO;
        link.waits(&place, Instant::now(), || true)
    }

    #[test]
    fn a_caller_that_gave_up_on_the_thread_is_owed_a_gap() {
        let link = Link::default();
        assert_eq!(waits(&link), None);
        assert_eq!(link.hears(true), Some(true));
        let first = waits(&link);
        assert_eq!(link.hears(true), Some(false));
        assert!(first.is_some() && link.session() != first, "another connection hears");
    }

    #[cfg(feature = "servers")] // takes seconds of real time
    #[test]
    fn a_request_whose_place_is_over_keeps_no_thread() {
        let link = Link::default();
        waits(&link);
        eventually("the thread ends", || link.has_to_end());
    }

    #[test]
    fn the_keys_are_those_of_all_versions() {
        assert_eq!(key_of("a").cast_unsigned(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(channel_of("a"), "fl_af63dc4c8601ec8c");
    }
}
