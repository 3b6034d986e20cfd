//! The subscriptions of a backend's clients, and which waiter listens on which channel.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_core::backend::{Acquired, BackendError, BackendErrorKind, Place, Subscription, Wake, WakeSink};
use fairlock_core::{ClientId, LockName, OwnerId};
use parking_lot::Mutex;

use crate::client_message::{ClientMessage, Grants};
use crate::keys::client_channel;
use crate::net::connection::Timeouts;
use crate::net::subscription::{Endpoints, Event, Subscriber};
use crate::net::topology::Topology;
use crate::settings::Settings;

/// The subscribed clients of one backend.
pub(crate) struct WakeUps {
    servers: Arc<Topology>,
    timeouts: Timeouts,
    grants: Grants,
    clients: Arc<Clients>,
}

/// By the client's UUID, as the names of its owners have it.
type Clients = Mutex<HashMap<String, Arc<Client>>>;

struct Client {
    subscriber: Subscriber,
    routes: Arc<Routes>,
    deaf: Mutex<Deaf>,
}

/// A client that the server answers, and that gets no wake-ups.
#[derive(Debug, Default)]
struct Deaf {
    /// When the server first answered while the subscription was cut off.
    since: Option<Instant>,
    warned: bool,
}

/// The subscription comes back within this time after an outage, as a rule: that is not worth a warning.
const DEAF: Duration = Duration::from_secs(5);

impl Deaf {
    /// The server has answered. Returns whether to warn, once until the subscription is back.
    fn answered(&mut self, cut_off: bool, now: Instant) -> bool {
        if !cut_off {
            *self = Deaf::default();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= DEAF && !std::mem::replace(&mut self.warned, true)
    }
}

/// Turns messages into wake-ups.
struct Routes {
    client: String,
    own_channel: String,
    sink: Arc<dyn WakeSink>,
    grants: Grants,
    waiting: Mutex<Waiting>,
}

/// Which waiter listens on which channel. In Redisson's line each has its own; those of a plain lock share one.
#[derive(Default)]
struct Waiting {
    channels: HashMap<Waiter, String>,
    waiters: HashMap<String, Vec<Waiter>>,
}

type Waiter = (LockName, OwnerId);

/// Whether the waiter's channel was subscribed when its question was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subscribed {
    Before,
    /// A release between the answer and the subscription woke no waiter, so the caller has to ask again.
    JustNow,
}

impl WakeUps {
    pub(crate) fn new(servers: Arc<Topology>, settings: &Settings) -> WakeUps {
        let asks_quorum = settings.durability.is_some_and(|durability| durability.proof_age().is_some());
        let grants = if asks_quorum { Grants::ToBeConfirmed } else { Grants::Believed };
        WakeUps { servers, timeouts: settings.timeouts, grants, clients: Arc::default() }
    }

    /// Subscribes a client; returns once its channel is confirmed.
    pub(crate) fn subscribe(
        &self,
        client: ClientId,
        sink: Arc<dyn WakeSink>,
    ) -> Result<Subscription, BackendError> {
        let (name, own_channel) = (client.to_string(), client_channel(client));
        let routes = Arc::new(Routes {
            client: name.clone(),
            own_channel: own_channel.clone(),
            sink,
            grants: self.grants,
            waiting: Mutex::default(),
        });
        let receiver = Arc::clone(&routes);
        let subscriber = Subscriber::start(
            Arc::clone(&self.servers) as Arc<dyn Endpoints>,
            self.timeouts,
            own_channel,
            Arc::new(move |event: &Event<'_>| receiver.receive(event)),
        )
        .map_err(|failure| failure.explain(&self.servers, "subscribing to wake-ups"))?;
        let client = Client { subscriber, routes, deaf: Mutex::default() };
        self.clients.lock().insert(name.clone(), Arc::new(client));
        Ok(Subscription::new(Registration { clients: Arc::downgrade(&self.clients), client: name }))
    }

    /// Subscribes the place's owner to `channel`, until [`stop_listening`](Self::stop_listening). Blocks until the
    /// server has confirmed it.
    pub(crate) fn listen(
        &self,
        place: &Place<'_>,
        channel: impl FnOnce() -> String,
    ) -> Result<Subscribed, BackendError> {
        // A client without a subscription has no wake-ups to wait for.
        let Some(client) = self.client(place) else { return Ok(Subscribed::Before) };
        let waiter = (place.lock.name.clone(), place.owner.clone());
        if client.routes.waiting.lock().channels.contains_key(&waiter) {
            return Ok(Subscribed::Before);
        }
        let channel = channel();
        // Before the subscription, so that a message that comes at once finds the waiter.
        client.routes.waiting.lock().add(waiter.clone(), &channel);
        // To the lock's own server, which has just answered; a cluster passes it on to the subscriber's node.
        let nudge = |nudge: Vec<u8>| {
            let sent = self.servers.ask(place.lock.name.as_str(), |route| route.pool.call(nudge.as_slice()));
            sent.map_err(|failed| failed.failure)
        };
        match client.subscriber.want(&channel, nudge) {
            Ok(()) => Ok(Subscribed::JustNow),
            Err(failure) => {
                client.routes.waiting.lock().remove(&waiter);
                let error = failure.explain(&self.servers, "subscribing to the lock's channel");
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
        }
    }

    /// Stops listening if the answer is a grant.
    pub(crate) fn settle(&self, place: &Place<'_>, answer: Acquired) -> Acquired {
        if matches!(answer, Acquired::Granted { .. }) {
            self.stop_listening(place);
        }
        answer
    }

    /// The place's owner waits no longer.
    pub(crate) fn stop_listening(&self, place: &Place<'_>) {
        let Some(client) = self.client(place) else { return };
        let waiter = (place.lock.name.clone(), place.owner.clone());
        let channel = client.routes.waiting.lock().remove(&waiter);
        if let Some(channel) = channel {
            client.subscriber.unwant(&channel);
        }
    }

    /// Whether the place's client has lost its subscription, as far as it knows. False for a client that never had one.
    pub(crate) fn is_cut_off(&self, place: &Place<'_>) -> bool {
        self.client(place).is_some_and(|client| client.subscriber.is_cut_off())
    }

    /// The server has answered a heartbeat of this place: if its client has been without a subscription for a while, that is
    /// logged.
    pub(crate) fn heartbeat_answered(&self, place: &Place<'_>) {
        let Some(client) = self.client(place) else { return };
        let cut_off = client.subscriber.is_cut_off();
        if client.deaf.lock().answered(cut_off, Instant::now()) {
            let name = &client.routes.client;
            log::warn!(
                target: "fairlock::wake",
                event = "cut off", client = name.as_str();
                "client {name} gets no wake-ups, though the server answers: its waiters keep their places, and learn of \
                 their turns by their heartbeats, up to a third of a place's time late"
            );
        }
    }

    fn client(&self, place: &Place<'_>) -> Option<Arc<Client>> {
        self.clients.lock().get(place.owner.client()).cloned()
    }
}

/// Ends a client's subscription when it is dropped.
struct Registration {
    clients: Weak<Clients>,
    client: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(clients) = self.clients.upgrade() {
            let client = clients.lock().remove(&self.client);
            drop(client); // with the map unlocked
        }
    }
}

impl Routes {
    fn receive(&self, event: &Event<'_>) {
        match event {
            Event::Gap => self.sink.wake(Wake::Gap),
            Event::Message { channel, payload } if *channel == self.own_channel.as_bytes() => {
                match std::str::from_utf8(payload).ok().and_then(ClientMessage::parse) {
                    Some(message) => message.wake(&self.client, &*self.sink, self.grants),
                    // A word of a later version: heartbeats find out what it meant.
                    None => {
                        log::debug!(
                            target: "fairlock::wake",
                            event = "ignored", bytes = payload.len();
                            "a message of {} bytes ignored", payload.len()
                        )
                    }
                }
            }
            // Redisson's word for "released". Other payloads are for other kinds of locks.
            Event::Message { channel, payload: b"0" } => self.wake_one(channel),
            Event::Message { .. } => {}
        }
    }

    /// Wakes a waiter that listens on this channel; one is enough where several share it.
    fn wake_one(&self, channel: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        let ((lock, owner), alone) = match self.waiting.lock().waiters.get(channel).map(Vec::as_slice) {
            Some([waiter]) => (waiter.clone(), true),
            Some([waiter, ..]) => (waiter.clone(), false),
            Some([]) | None => return,
        };
        self.sink.wake(Wake::Recheck { lock: lock.as_str(), owner: alone.then_some(owner.as_str()) });
    }
}

impl Waiting {
    fn add(&mut self, waiter: Waiter, channel: &str) {
        self.waiters.entry(channel.to_owned()).or_default().push(waiter.clone());
        self.channels.insert(waiter, channel.to_owned());
    }

    fn remove(&mut self, waiter: &Waiter) -> Option<String> {
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

    #[test]
    fn a_client_that_is_answered_and_hears_nothing_for_a_while_is_worth_one_warning() {
        let (mut deaf, start) = (Deaf::default(), Instant::now());
        assert!(!deaf.answered(true, start), "its subscription may be on its way");
        assert!(deaf.answered(true, start + DEAF));
        assert!(!deaf.answered(true, start + 9 * DEAF), "once");
        assert!(!deaf.answered(false, start + 9 * DEAF), "it is back");
        assert!(!deaf.answered(true, start + 10 * DEAF));
        assert!(deaf.answered(true, start + 11 * DEAF));
    }
}
