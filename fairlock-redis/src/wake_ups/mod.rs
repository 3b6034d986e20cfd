//! The subscriptions of a backend's clients, and the wake-ups that come of messages.

mod message;
#[cfg(test)]
pub(crate) mod recorded;
mod untold;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_core::ClientId;
use fairlock_core::backend::{
    Acquired, BackendError, Place, Renewal, Subscription, Wake, WakeSink, connect_within,
};
use parking_lot::Mutex;

use self::untold::Untold;
use crate::net::{Event, Hears, OnEvent, Servers, Subscriber};
use crate::script::keys::client_channel;

/// The subscribed clients of one backend.
pub(crate) struct WakeUps {
    servers: Servers,
    /// Whether a message may come from a server that another server has replaced.
    confirms: bool,
    others: Option<Arc<dyn OtherChannels>>,
    clients: Arc<Clients>,
    pub(crate) untold: Untold,
}

/// What hears messages on other channels than the clients' own.
pub(crate) trait OtherChannels: Send + Sync {
    fn receive(&self, client: &str, channel: &[u8], payload: &[u8], sink: &dyn WakeSink);

    /// The client is no longer subscribed.
    fn forget(&self, client: &str);
}

/// The clients by UUID, as the names of their owners have it.
type Clients = Mutex<BTreeMap<String, Arc<Client>>>;

pub(crate) struct Client {
    name: String,
    pub(crate) subscriber: Subscriber,
    deaf: Mutex<Deaf>,
}

/// A client that gets answers from the server, but no wake-ups.
#[derive(Debug, Default)]
struct Deaf {
    /// When the server first answered while the subscription was cut off.
    since: Option<Instant>,
    warned: bool,
}

/// As a rule the subscription comes back within this time after an outage, which is not worth a warning.
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

impl WakeUps {
    pub(crate) fn new(servers: &Servers, confirms: bool, others: Option<Arc<dyn OtherChannels>>) -> WakeUps {
        let untold = Untold::new(servers);
        WakeUps { servers: servers.clone(), confirms, others, clients: Arc::default(), untold }
    }

    /// Subscribes a client; returns once its channel is confirmed. Like connecting it is tried again for a while: a server may have
    /// room for the connection that carries commands, and not yet for this one.
    pub(crate) fn subscribe(
        &self,
        client: ClientId,
        sink: Arc<dyn WakeSink>,
    ) -> Result<Subscription, BackendError> {
        let (name, own_channel) = (client.to_string(), client_channel(client));
        let (client, own, confirms) = (name.clone(), own_channel.clone(), self.confirms);
        let others = self.others.clone();
        let receive: OnEvent = Arc::new(move |event| match *event {
            Event::Gap => sink.wake(Wake::Gap),
            Event::Message { channel, payload } if channel == own.as_bytes() => {
                let text = std::str::from_utf8(payload).unwrap_or_default();
                // A word of a later version: heartbeats find out what it meant.
                if message::wake(text, &client, &*sink, confirms).is_none() {
                    log::debug!(
                        target: "fairlock::wake",
                        event = "ignored", bytes = payload.len();
                        "a message of {} bytes ignored", payload.len()
                    );
                }
            }
            Event::Message { channel, payload } => {
                if let Some(others) = &others {
                    others.receive(&client, channel, payload, &*sink);
                }
            }
        });
        let subscriber = connect_within(self.servers.settings().connect_within, || {
            let subscriber = self.servers.listen(own_channel.clone(), Arc::clone(&receive));
            subscriber.map_err(|failure| failure.explain(&self.servers, "subscribing to wake-ups"))
        })?;
        let client = Client { name: name.clone(), subscriber, deaf: Mutex::default() };
        self.clients.lock().insert(name.clone(), Arc::new(client));
        let (clients, others) = (Arc::downgrade(&self.clients), self.others.clone());
        Ok(Subscription::new(Registration { clients, others, client: name }))
    }

    /// Whether the place's client hears messages. None for a client that never had a subscription.
    pub(crate) fn hears(&self, place: &Place<'_>) -> Option<Hears> {
        self.client(place).map(|client| client.subscriber.hears())
    }

    /// The server has answered a heartbeat of this place: if its client has been without a subscription for a while, that is
    /// logged.
    pub(crate) fn heartbeat_answered(&self, place: &Place<'_>) {
        let Some(client) = self.client(place) else { return };
        let cut_off = client.subscriber.hears() == Hears::Nothing;
        if client.deaf.lock().answered(cut_off, Instant::now()) {
            let name = &client.name;
            log::warn!(
                target: "fairlock::wake",
                event = "cut off", client = name.as_str();
                "client {name} gets no wake-ups, though the server answers: its waiters keep their places, and learn of \
                 their turns by their heartbeats, up to a third of the place TTL late"
            );
        }
    }

    /// The answer, with the time after which a waiter looks by itself.
    pub(crate) fn acquired(&self, place: &Place<'_>, mut answer: Acquired) -> Acquired {
        if let Acquired::Queued { rank, recheck_in, .. } = &mut answer {
            self.untold.waits(place.lock.name.as_str(), || client_channel(place.owner.client()));
            *recheck_in = self.untold.look_in(*rank, *recheck_in);
        }
        answer
    }

    /// The same for a heartbeat.
    pub(crate) fn renewed(&self, mut answer: Renewal) -> Renewal {
        if let Renewal::Waiting { rank, recheck_in, .. } = &mut answer {
            *recheck_in = self.untold.look_in(*rank, *recheck_in);
        }
        answer
    }

    pub(crate) fn client(&self, place: &Place<'_>) -> Option<Arc<Client>> {
        self.clients.lock().get(place.owner.client()).cloned()
    }
}

/// Ends a client's subscription when it is dropped.
struct Registration {
    clients: Weak<Clients>,
    others: Option<Arc<dyn OtherChannels>>,
    client: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(clients) = self.clients.upgrade() {
            let client = clients.lock().remove(&self.client);
            drop(client); // with the map unlocked
        }
        if let Some(others) = &self.others {
            others.forget(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is answered and hears nothing for a while is worth one warning.
    #[test]
    fn a_client_that_hears_nothing_for_a_while_is_warned_once() {
        let (mut deaf, start) = (Deaf::default(), Instant::now());
        assert!(!deaf.answered(true, start), "its subscription may be on its way");
        assert!(deaf.answered(true, start + DEAF));
        assert!(!deaf.answered(true, start + 9 * DEAF), "once");
        assert!(!deaf.answered(false, start + 9 * DEAF), "it is back");
        assert!(!deaf.answered(true, start + 10 * DEAF));
        assert!(deaf.answered(true, start + 11 * DEAF));
    }
}
