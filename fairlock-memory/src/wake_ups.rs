//! The subscribed clients, and the wake-ups to deliver once the mutexes are free.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use fairlock_core::backend::{RequestId, Wake, WakeSink};
use fairlock_core::{FencingToken, LockName, OwnerId};

/// The client part of an owner: everything before the last colon.
pub(crate) fn client_of(owner: &OwnerId) -> &str {
    owner.as_str().rsplit_once(':').map_or(owner.as_str(), |(client, _)| client)
}

/// A `Wake` that owns its parts, until it is delivered.
#[derive(Debug)]
pub(crate) enum WakeUp {
    Granted {
        lock: LockName,
        owner: OwnerId,
        request: RequestId,
        token: FencingToken,
    },
    /// Without an owner it is for any waiter of the client.
    Recheck {
        lock: LockName,
        owner: Option<OwnerId>,
    },
    Taken {
        lock: LockName,
        owner: OwnerId,
        token: FencingToken,
    },
    Gap,
}

/// A wake-up on its way.
pub(crate) struct Outgoing {
    sink: Arc<dyn WakeSink>,
    wake_up: WakeUp,
}

impl Outgoing {
    /// All mutexes must be free: a sink is foreign code.
    pub(crate) fn deliver(&self) {
        self.sink.wake(match &self.wake_up {
            WakeUp::Granted { lock, owner, request, token } => {
                Wake::Granted { lock: lock.as_str(), owner: owner.as_str(), request: *request, token: *token }
            }
            WakeUp::Recheck { lock, owner } => {
                Wake::Recheck { lock: lock.as_str(), owner: owner.as_ref().map(OwnerId::as_str) }
            }
            WakeUp::Taken { lock, owner, token } => {
                Wake::Taken { lock: lock.as_str(), owner: owner.as_str(), token: *token }
            }
            WakeUp::Gap => Wake::Gap,
        });
    }
}

struct Listener {
    sink: Arc<dyn WakeSink>,
    /// Tells the client's subscriptions apart.
    number: u64,
}

/// Who is subscribed. All shards share it, behind a mutex of its own.
#[derive(Default)]
pub(crate) struct WakeUps(Mutex<Listeners>);

/// The listeners by client, as owners spell it.
#[derive(Default)]
struct Listeners {
    by_client: HashMap<Box<str>, Listener>,
    subscriptions: u64,
    /// Clients that a test has cut off.
    cut_off: HashSet<Box<str>>,
    /// How many of the next wake-ups are lost.
    to_lose: usize,
}

impl WakeUps {
    /// Delivers to `sink` from now on. Returns the number of the subscription, and the sink that it replaces: drop that one
    /// when all mutexes are free, since its drop is foreign code.
    pub(crate) fn listen(&self, client: &str, sink: Arc<dyn WakeSink>) -> (u64, Option<Arc<dyn WakeSink>>) {
        let mut listeners = self.0.lock();
        listeners.subscriptions += 1;
        let number = listeners.subscriptions;
        let replaced = listeners.by_client.insert(client.into(), Listener { sink, number });
        (number, replaced.map(|listener| listener.sink))
    }

    /// Ends a subscription, unless a newer one of the client has replaced it. Drop the sink when all mutexes are free.
    pub(crate) fn stop_listening(&self, client: &str, number: u64) -> Option<Arc<dyn WakeSink>> {
        let mut listeners = self.0.lock();
        listeners.by_client.get(client).filter(|listener| listener.number == number)?;
        listeners.by_client.remove(client).map(|listener| listener.sink)
    }

    /// Whether the owner's client is subscribed. (A wake-up for it may still get lost.)
    pub(crate) fn is_subscribed(&self, owner: &OwnerId) -> bool {
        self.0.lock().sink(client_of(owner)).is_some()
    }

    /// A wake-up for the owner's client, if it is subscribed.
    pub(crate) fn to(&self, owner: &OwnerId, wake_up: WakeUp) -> Option<Outgoing> {
        self.0.lock().outgoing(client_of(owner), wake_up)
    }

    pub(crate) fn lose_next(&self, times: usize) {
        let mut listeners = self.0.lock();
        listeners.to_lose = listeners.to_lose.saturating_add(times);
    }

    pub(crate) fn cut_off(&self, client: &str) {
        self.0.lock().cut_off.insert(client.into());
    }

    /// The client is back, and is told that it may have missed wake-ups.
    pub(crate) fn bring_back(&self, client: &str) -> Option<Outgoing> {
        let mut listeners = self.0.lock();
        if !listeners.cut_off.remove(client) {
            return None;
        }
        listeners.outgoing(client, WakeUp::Gap)
    }

    pub(crate) fn is_cut_off(&self, client: &str) -> bool {
        self.0.lock().is_cut_off(client)
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl Listeners {
    fn is_cut_off(&self, client: &str) -> bool {
        !self.cut_off.is_empty() && self.cut_off.contains(client)
    }

    fn sink(&self, client: &str) -> Option<&Arc<dyn WakeSink>> {
        if self.is_cut_off(client) {
            return None;
        }
        self.by_client.get(client).map(|listener| &listener.sink)
    }

    fn outgoing(&mut self, client: &str, wake_up: WakeUp) -> Option<Outgoing> {
        let sink = Arc::clone(self.sink(client)?);
        if self.to_lose > 0 {
            self.to_lose -= 1;
            return None;
        }
        Some(Outgoing { sink, wake_up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl WakeSink for Deaf {
        fn wake(&self, _: Wake<'_>) {}
    }

    #[test]
    fn the_client_of_an_owner_is_everything_before_its_last_colon() {
        assert_eq!(client_of(&OwnerId::new("a:b:17")), "a:b");
        assert_eq!(client_of(&OwnerId::new("alone")), "alone");
    }

    #[test]
    fn a_late_end_of_a_subscription_leaves_the_one_that_replaced_it() {
        let wake_ups = WakeUps::default();
        let (first, _) = wake_ups.listen("a", Arc::new(Deaf));
        let (second, replaced) = wake_ups.listen("a", Arc::new(Deaf));
        assert!(replaced.is_some());
        assert!(wake_ups.stop_listening("a", first).is_none());
        assert!(wake_ups.is_subscribed(&OwnerId::new("a:1")));
        assert!(wake_ups.stop_listening("a", second).is_some());
        assert!(!wake_ups.is_subscribed(&OwnerId::new("a:1")));
    }

    #[test]
    fn only_wake_ups_of_a_subscribed_client_count_as_lost() {
        let (wake_ups, lock) = (WakeUps::default(), LockName::new("x").unwrap());
        wake_ups.listen("a", Arc::new(Deaf));
        wake_ups.lose_next(1);
        let is_sent = |owner| {
            wake_ups.to(&OwnerId::new(owner), WakeUp::Recheck { lock: lock.clone(), owner: None }).is_some()
        };
        assert_eq!([is_sent("b:1"), is_sent("a:1"), is_sent("a:1")], [false, false, true]);
    }
}
