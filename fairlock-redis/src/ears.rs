//! Who listens for which client, and on which channels its waiters are told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fairlock_core::backend::{
    Acquired, BackendError, BackendErrorKind, Place, RequestId, Subscription, Wake, WakeSink,
};
use fairlock_core::{ClientId, FencingToken, LockName, OwnerId};
use parking_lot::Mutex;

use crate::backend::Inner;
use crate::keys::client_channel;
use crate::net::subscription::{Endpoints, Event, Subscriber};

/// The subscribers of the clients of one backend, by the client's UUID as it stands in its owners' names.
#[derive(Default)]
pub(crate) struct Ears(Mutex<HashMap<String, Arc<ClientEar>>>);

/// One client's subscriber, and what its waiters listen for.
struct ClientEar {
    ear: Subscriber,
    routes: Arc<Routes>,
    /// Since it went deaf the log has said so.
    told: AtomicBool,
}

/// Whether a client would hear a wake-up, as far as it knows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    Hears,
    Deaf,
}

/// Turns messages into wake-ups.
struct Routes {
    client: String,
    own_channel: String,
    sink: Arc<dyn WakeSink>,
    grants: Grants,
    waiting: Mutex<Waiting>,
}

/// What the message of a grant is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grants {
    Believed,
    /// Replicas have to have it: the waiter asks, and with the answer that is made sure.
    ToBeConfirmed,
}

/// Who listens on which channel. A fair waiter has a channel of his own, plain ones share one a lock.
#[derive(Default)]
struct Waiting {
    channels: HashMap<Waiter, String>,
    waiters: HashMap<String, Vec<Waiter>>,
}

type Waiter = (LockName, OwnerId);

/// Whether a waiter's channel was heard before the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subscribed {
    Before,
    JustNow,
}

impl Ears {
    /// Listens for a client; returns when its channel is heard, or with the reason why it can't be.
    pub(crate) fn subscribe(
        inner: &Arc<Inner>,
        client: ClientId,
        sink: Arc<dyn WakeSink>,
    ) -> Result<Subscription, BackendError> {
        let (name, own_channel) = (client.to_string(), client_channel(client));
        let routes = Arc::new(Routes {
            client: name.clone(),
            own_channel: own_channel.clone(),
            sink,
            grants: match inner.settings.replicas {
                None => Grants::Believed,
                Some(_) => Grants::ToBeConfirmed,
            },
            waiting: Mutex::default(),
        });
        let heard = Arc::clone(&routes);
        let ear = Subscriber::start(
            Arc::clone(&inner.servers) as Arc<dyn Endpoints>,
            inner.settings.timeouts,
            own_channel,
            Arc::new(move |message: &Event<'_>| heard.deliver(message)),
        )
        .map_err(|failure| failure.explain(&inner.servers, "subscribing to wake-ups"))?;
        inner
            .ears
            .0
            .lock()
            .insert(name.clone(), Arc::new(ClientEar { ear, routes, told: AtomicBool::new(false) }));
        Ok(Subscription::new(Listening { inner: Arc::downgrade(inner), client: name }))
    }

    /// Has the place's owner told on `channel`, until [`forget`](Self::forget). Blocks until that is so.
    pub(crate) fn listen(
        &self,
        inner: &Inner,
        place: &Place<'_>,
        channel: impl FnOnce() -> String,
    ) -> Result<Subscribed, BackendError> {
        // Without a subscribed client there is nobody to be told.
        let Some(client) = self.of(place) else { return Ok(Subscribed::Before) };
        let waiter = (place.lock.name.clone(), place.owner.clone());
        if client.routes.waiting.lock().channels.contains_key(&waiter) {
            return Ok(Subscribed::Before);
        }
        let channel = channel();
        // Before it is subscribed: a message that comes at once finds its way.
        client.routes.waiting.lock().add(waiter.clone(), &channel);
        // On the lock's own server, which has just answered; in a cluster it reaches the subscriber wherever that listens.
        let nudge = |nudge: Vec<u8>| {
            let sent = inner.servers.ask(place.lock.name.as_str(), |route| route.pool.call(nudge.clone()));
            sent.map_err(|trouble| trouble.failure)
        };
        match client.ear.want(&channel, nudge) {
            Ok(()) => Ok(Subscribed::JustNow),
            Err(failure) => {
                client.routes.waiting.lock().remove(&waiter);
                let error = failure.explain(&inner.servers, "subscribing to the lock's channel");
                if error.kind() == BackendErrorKind::Denied {
                    return Err(error);
                }
                // The heartbeats look after the place meanwhile, and the next attempt listens again.
                log::warn!(
                    target: "fairlock::wake",
                    event = "no wake-ups", lock = place.lock.name.as_str(), error:% = error;
                    "lock {}: no wake-ups yet: {error}", place.lock.name
                );
                Ok(Subscribed::Before)
            }
        }
    }

    /// A grant ends the interest in wake-ups.
    pub(crate) fn settle(&self, place: &Place<'_>, answer: Acquired) -> Acquired {
        if matches!(answer, Acquired::Granted { .. }) {
            self.forget(place);
        }
        answer
    }

    /// The place's owner waits no more.
    pub(crate) fn forget(&self, place: &Place<'_>) {
        let Some(client) = self.of(place) else { return };
        let waiter = (place.lock.name.clone(), place.owner.clone());
        let channel = client.routes.waiting.lock().remove(&waiter);
        if let Some(channel) = channel {
            client.ear.unwant(&channel);
        }
    }

    /// How it is with the client of this place. One without a subscription says nothing about it.
    pub(crate) fn hearing(&self, place: &Place<'_>) -> Hearing {
        let Some(client) = self.of(place) else { return Hearing::Hears };
        if !client.ear.is_cut_off() {
            client.told.store(false, Ordering::Relaxed);
            return Hearing::Hears;
        }
        if !client.told.swap(true, Ordering::Relaxed) {
            let name = &client.routes.client;
            log::warn!(
                target: "fairlock::wake",
                event = "deaf", client = name.as_str();
                "client {name} hears no wake-ups: its waiters keep their places, and learn of their turns by their \
                 heartbeats, up to a third of a place's time late"
            );
        }
        Hearing::Deaf
    }

    fn of(&self, place: &Place<'_>) -> Option<Arc<ClientEar>> {
        self.0.lock().get(place.owner.client()).cloned()
    }
}

/// Ends a client's subscriber when it is dropped.
struct Listening {
    inner: Weak<Inner>,
    client: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let ear = inner.ears.0.lock().remove(&self.client);
            drop(ear); // with the map let go
        }
    }
}

impl Routes {
    fn deliver(&self, message: &Event<'_>) {
        match message {
            Event::Gap => self.sink.wake(Wake::Gap),
            Event::Message { channel, payload } if *channel == self.own_channel.as_bytes() => {
                match std::str::from_utf8(payload).ok().and_then(ClientMessage::parse) {
                    Some(told) => told.deliver(&self.client, &*self.sink, self.grants),
                    // Words of a later version; the place's heartbeats find out what they meant.
                    None => {
                        log::debug!(
                            target: "fairlock::wake",
                            event = "ignored", bytes = payload.len();
                            "a message of {} bytes ignored", payload.len()
                        )
                    }
                }
            }
            Event::Message { channel, payload } => {
                // Redisson's word for "released". Other payloads are for other kinds of locks.
                if *payload == b"0" {
                    self.look(channel);
                }
            }
        }
    }

    /// Wakes whoever listens on this channel; one is enough where several share it.
    fn look(&self, channel: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        let (waiter, alone) = match self.waiting.lock().waiters.get(channel).map(Vec::as_slice) {
            Some([waiter]) => (waiter.clone(), true),
            Some([waiter, ..]) => (waiter.clone(), false),
            Some([]) | None => return,
        };
        let (lock, owner) = &waiter;
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

/// What can be said on a client's own channel. The name comes last, since it may hold any character.
#[derive(Debug, PartialEq, Eq)]
enum ClientMessage<'a> {
    Look { number: &'a str, name: &'a str },
    Taken { number: &'a str, token: FencingToken, name: &'a str },
    Granted { number: &'a str, request: RequestId, token: FencingToken, name: &'a str },
}

impl<'a> ClientMessage<'a> {
    fn parse(payload: &'a str) -> Option<ClientMessage<'a>> {
        let (word, rest) = payload.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        match word {
            "look" => Some(ClientMessage::Look { number, name: rest }),
            "taken" => {
                let (token, name) = rest.split_once(' ')?;
                Some(ClientMessage::Taken { number, token: FencingToken::new(token.parse().ok()?), name })
            }
            "granted" => {
                let (request, rest) = rest.split_once(' ')?;
                let request = RequestId::new(u64::from_str_radix(request, 16).ok()?);
                let (token, name) = rest.split_once(' ')?;
                Some(ClientMessage::Granted {
                    number,
                    request,
                    token: FencingToken::new(token.parse().ok()?),
                    name,
                })
            }
            _ => None,
        }
    }

    fn deliver(self, client: &str, sink: &dyn WakeSink, grants: Grants) {
        match self {
            ClientMessage::Look { number, name } => {
                let owner = format!("{client}:{number}");
                sink.wake(Wake::Recheck { lock: name, owner: Some(&owner) });
            }
            ClientMessage::Taken { number, token, name } => {
                let owner = format!("{client}:{number}");
                sink.wake(Wake::Taken { lock: name, owner: &owner, token });
            }
            ClientMessage::Granted { number, name, .. } if grants == Grants::ToBeConfirmed => {
                let owner = format!("{client}:{number}");
                sink.wake(Wake::Recheck { lock: name, owner: Some(&owner) });
            }
            ClientMessage::Granted { number, request, token, name } => {
                let owner = format!("{client}:{number}");
                sink.wake(Wake::Granted { lock: name, owner: &owner, request, token });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_unknown_ones_are_left_alone() {
        let taken = ClientMessage::Taken { number: "7", token: FencingToken::new(12), name: "a b\n" };
        assert_eq!(ClientMessage::parse("taken 7 12 a b\n"), Some(taken));
        assert_eq!(ClientMessage::parse("look 7 x"), Some(ClientMessage::Look { number: "7", name: "x" }));
        for payload in ["", "0", "nudge", "taken 7 x name", "later 7 x"] {
            assert_eq!(ClientMessage::parse(payload), None, "{payload}");
        }
    }
}
