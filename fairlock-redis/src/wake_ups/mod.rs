//! The subscriptions of a backend's clients, the messages on a client's own channel, and the wake-ups that they mean.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquired, BackendError, Place, Renewal, RequestId, Subscription, Wake, WakeSink, connect_within,
};
use fairlock_core::{ClientId, FencingToken};
use parking_lot::Mutex;

use crate::net::{Event, Hears, OnEvent, Subscriber};
use crate::script::Scripts;
use crate::script::scripts::client_channel;

/// The subscribed clients of one backend.
pub(crate) struct WakeUps {
    pub(crate) scripts: Arc<Scripts>,
    /// Whether a message may come from a server that another server has replaced.
    confirms: bool,
    others: Option<Arc<dyn OtherChannels>>,
    clients: Arc<Clients>,
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
    pub(crate) fn new(
        scripts: &Arc<Scripts>,
        confirms: bool,
        others: Option<Arc<dyn OtherChannels>>,
    ) -> WakeUps {
        WakeUps { scripts: Arc::clone(scripts), confirms, others, clients: Arc::default() }
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
                if wake(text, &client, &*sink, confirms).is_none() {
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
        let servers = &self.scripts.servers;
        let subscriber = connect_within(servers.settings().connect_within, || {
            let subscriber = servers.listen(own_channel.clone(), Arc::clone(&receive));
            subscriber.map_err(|failure| failure.explain(servers, "subscribing to wake-ups"))
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
            self.scripts.untold.waits(place.lock.name.as_str(), || client_channel(place.owner.client()));
            *recheck_in = self.scripts.untold.look_in(*rank, *recheck_in);
        }
        answer
    }

    /// The same for a heartbeat.
    pub(crate) fn renewed(&self, mut answer: Renewal) -> Renewal {
        if let Renewal::Waiting { rank, recheck_in, .. } = &mut answer {
            *recheck_in = self.scripts.untold.look_in(*rank, *recheck_in);
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

/// Reads a message: a word, the number of an owner of this client (or a whole member), and what follows. The name of the lock comes
/// last, since it may contain any character. None for a word that is not known.
///
/// `confirms`: a deposed master may have sent the message. So a grant is not believed, and the waiter asks the master of now.
fn wake(payload: &str, client: &str, sink: &dyn WakeSink, confirms: bool) -> Option<()> {
    let (word, rest) = payload.split_once(' ')?;
    let (who, rest) = rest.split_once(' ')?;
    let token_and_lock = || {
        let (token, lock) = rest.split_once(' ')?;
        Some((FencingToken::new(token.parse().ok()?), lock))
    };
    match word {
        "look" => sink.wake(Wake::Recheck { lock: rest, owner: Some(&format!("{client}:{who}")) }),
        "taken" => {
            let (token, lock) = token_and_lock()?;
            sink.wake(Wake::Taken { lock, owner: &format!("{client}:{who}"), token });
        }
        "granted" => {
            let (owner, request) = who.rsplit_once(':')?;
            let request = RequestId::new(u64::from_str_radix(request, 16).ok()?);
            let (token, lock) = token_and_lock()?;
            sink.wake(match confirms {
                true => Wake::Recheck { lock, owner: Some(owner) },
                false => Wake::Granted { lock, owner, request, token },
            });
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_backend::RecordedWakeUps;
    use proptest::prelude::*;

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

    fn woken(payload: &str, confirms: bool) -> Vec<String> {
        let told = RecordedWakeUps::default();
        let is_known = wake(payload, "u", &told, confirms).is_some();
        let told = told.0.into_inner();
        assert_eq!(is_known, told.len() == 1, "{payload}");
        told
    }

    #[test]
    fn known_words_are_read_and_unknown_ones_ignored() {
        let (lock, owner, token) = ("a b\n", "u:7", FencingToken::new(12));
        let taken = Wake::Taken { lock, owner, token };
        assert_eq!(woken("taken 7 12 a b\n", false), [format!("{taken:?}")]);
        let recheck = Wake::Recheck { lock, owner: Some(owner) };
        assert_eq!(woken("look 7 a b\n", false), [format!("{recheck:?}")]);
        let granted = Wake::Granted { lock, owner, request: RequestId::new(10), token };
        assert_eq!(woken("granted u:7:000000000000000a 12 a b\n", false), [format!("{granted:?}")]);
        for payload in ["", "0", "nudge", "taken 7 x name", "later 7 x", "granted u:7:x 12 a", "v2 look 7 x"]
        {
            assert!(woken(payload, false).is_empty(), "{payload}");
        }
    }

    #[test]
    fn a_grant_that_is_to_be_confirmed_makes_the_waiter_ask() {
        let recheck = [format!("{:?}", Wake::Recheck { lock: "x", owner: Some("u:7") })];
        assert_eq!(woken("look 7 x", true), recheck);
        assert_eq!(woken("granted u:7:1f 12 x", true), recheck);
        let taken = Wake::Taken { lock: "x", owner: "u:7", token: FencingToken::new(12) };
        assert_eq!(woken("taken 7 12 x", true), [format!("{taken:?}")]);
    }

    proptest! {
        /// What is written is read, however the lock is named, and any other text is a message or none.
        #[test]
        fn damaged_messages_are_others_or_none(
            number in any::<u64>(),
            token in any::<u64>(),
            name in "\\PC{0,9}",
            at in any::<proptest::sample::Index>(),
            other in "[ :0-9a-z\\PC]{0,2}",
        ) {
            let (owner, token, lock) = (format!("u:{number}"), FencingToken::new(token), &name);
            let granted = Wake::Granted { lock, owner: &owner, request: RequestId::new(number), token };
            let texts = [
                (format!("granted {owner}:{number:016x} {token} {name}"), granted),
                (format!("taken {number} {token} {name}"), Wake::Taken { lock, owner: &owner, token }),
                (format!("look {number} {name}"), Wake::Recheck { lock, owner: Some(&owner) }),
            ];
            for (text, meant) in texts {
                prop_assert_eq!(woken(&text, false), [format!("{meant:?}")]);
                let mut characters: Vec<char> = text.chars().collect();
                let at = at.index(characters.len());
                characters.splice(at..=at, other.chars());
                woken(&characters.into_iter().collect::<String>(), false);
            }
        }
    }
}
