//! The clients of this process: how each gets a message, and where they listen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Place, WakeSink};
use fairlock_rules::{WakeUp, WakeUpKind};
use parking_lot::{Mutex, RwLock};

use crate::link::{Link, Phase, Waiting};
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
    /// How often they poll, if it is set so.
    pub(crate) poll_every: Option<Duration>,
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
        let poll_every = match wake_ups {
            WakeUps::Listen => None,
            WakeUps::Poll(every) => Some(every),
        };
        Clients { all: RwLock::default(), listen_at, poll_every, deaf: Mutex::default() }
    }

    /// How these clients hear of grants.
    pub(crate) fn wake_ups(&self) -> WakeUps {
        self.poll_every.map_or(WakeUps::Listen, WakeUps::Poll)
    }

    /// Until when the clients poll, since a message was not heard.
    pub(crate) fn deaf_until(&self) -> Option<Instant> {
        self.deaf.lock().as_ref().map(|deaf| deaf.until)
    }

    /// A message was not heard. Returns whether that is new.
    pub(crate) fn is_deaf(&self) -> bool {
        let mut deaf = self.deaf.lock();
        let pause = deaf.as_ref().map_or(TRIED_AGAIN, |deaf| (deaf.pause * 2).min(LONGEST));
        deaf.replace(Deaf { until: Instant::now() + pause, pause }).is_none()
    }

    /// A message was heard.
    pub(crate) fn is_heard(&self) {
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
