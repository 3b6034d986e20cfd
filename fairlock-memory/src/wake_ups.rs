//! Who listens for wake-ups, and the wake-ups that are to be delivered when the store's mutex is free again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairlock_core::backend::{RequestId, Wake, WakeSink};
use fairlock_core::{FencingToken, LockName, OwnerId};

/// The client part of an owner: what stands before the last colon.
pub(crate) fn client_of(owner: &OwnerId) -> &str {
    owner.as_str().rsplit_once(':').map_or(owner.as_str(), |(client, _)| client)
}

/// A wake-up that owns what it names, until it is delivered.
#[derive(Debug)]
pub(crate) enum WakeUp {
    Granted { lock: LockName, owner: OwnerId, request: RequestId, token: FencingToken },
    Recheck { lock: LockName },
    Taken { lock: LockName, owner: OwnerId, token: FencingToken },
    Gap,
}

/// A wake-up on its way.
pub(crate) struct Outgoing {
    sink: Arc<dyn WakeSink>,
    wake_up: WakeUp,
}

impl Outgoing {
    /// Delivers it. The store's mutex must be free: a sink is foreign code.
    pub(crate) fn deliver(&self) {
        self.sink.wake(match &self.wake_up {
            WakeUp::Granted { lock, owner, request, token } => {
                Wake::Granted { lock: lock.as_str(), owner: owner.as_str(), request: *request, token: *token }
            }
            WakeUp::Recheck { lock } => Wake::Recheck { lock: lock.as_str(), owner: None },
            WakeUp::Taken { lock, owner, token } => {
                Wake::Taken { lock: lock.as_str(), owner: owner.as_str(), token: *token }
            }
            WakeUp::Gap => Wake::Gap,
        });
    }
}

struct Listener {
    sink: Arc<dyn WakeSink>,
    /// Which of the client's subscriptions it is.
    number: u64,
}

/// The listeners, by the client's name as owners spell it, and the wake-ups for them.
#[derive(Default)]
pub(crate) struct WakeUps {
    listeners: HashMap<Box<str>, Listener>,
    subscriptions: u64,
    /// Clients that a test has cut off.
    cut_off: HashSet<Box<str>>,
    /// How many of the next wake-ups get lost.
    to_lose: usize,
    outgoing: Vec<Outgoing>,
}

impl WakeUps {
    /// Delivers to `sink` from now on. Returns the number of the subscription, and the sink that it replaces: that
    /// one is to be dropped when the store's mutex is free, since its drop is foreign code.
    pub(crate) fn listen(
        &mut self,
        client: &str,
        sink: Arc<dyn WakeSink>,
    ) -> (u64, Option<Arc<dyn WakeSink>>) {
        self.subscriptions += 1;
        let number = self.subscriptions;
        let replaced = self.listeners.insert(client.into(), Listener { sink, number });
        (number, replaced.map(|listener| listener.sink))
    }

    /// Ends a subscription, unless a newer one of the client has replaced it. The sink is to be dropped when the
    /// store's mutex is free.
    pub(crate) fn stop_listening(&mut self, client: &str, number: u64) -> Option<Arc<dyn WakeSink>> {
        self.listeners.get(client).filter(|listener| listener.number == number)?;
        self.listeners.remove(client).map(|listener| listener.sink)
    }

    /// Whether the owner's client would hear a wake-up. (One that gets lost on the way is not known to be.)
    pub(crate) fn hears(&self, owner: &OwnerId) -> bool {
        self.sink(client_of(owner)).is_some()
    }

    /// Has this told to the owner's client, if it listens.
    pub(crate) fn tell(&mut self, owner: &OwnerId, wake_up: WakeUp) {
        self.tell_client(client_of(owner), wake_up);
    }

    /// What is to be delivered when the store's mutex is free, in this order.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    pub(crate) fn lose_next(&mut self, times: usize) {
        self.to_lose = self.to_lose.saturating_add(times);
    }

    pub(crate) fn cut_off(&mut self, client: &str) {
        self.cut_off.insert(client.into());
    }

    /// The client is back, and hears that it may have missed something.
    pub(crate) fn bring_back(&mut self, client: &str) {
        if self.cut_off.remove(client) {
            self.tell_client(client, WakeUp::Gap);
        }
    }

    pub(crate) fn is_any_cut_off(&self) -> bool {
        !self.cut_off.is_empty()
    }

    pub(crate) fn is_cut_off(&self, client: &str) -> bool {
        self.is_any_cut_off() && self.cut_off.contains(client)
    }

    fn sink(&self, client: &str) -> Option<&Arc<dyn WakeSink>> {
        if self.is_cut_off(client) {
            return None;
        }
        self.listeners.get(client).map(|listener| &listener.sink)
    }

    fn tell_client(&mut self, client: &str, wake_up: WakeUp) {
        let Some(sink) = self.sink(client) else { return };
        if self.to_lose > 0 {
            self.to_lose -= 1;
            return;
        }
        let sink = Arc::clone(sink);
        self.outgoing.push(Outgoing { sink, wake_up });
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
    fn the_client_of_an_owner_is_what_stands_before_the_last_colon() {
        assert_eq!(client_of(&OwnerId::new("a:b:17")), "a:b");
        assert_eq!(client_of(&OwnerId::new("alone")), "alone");
    }

    #[test]
    fn a_late_end_of_a_subscription_leaves_the_one_that_replaced_it() {
        let mut wake_ups = WakeUps::default();
        let (first, _) = wake_ups.listen("a", Arc::new(Deaf));
        let (second, replaced) = wake_ups.listen("a", Arc::new(Deaf));
        assert!(replaced.is_some());
        assert!(wake_ups.stop_listening("a", first).is_none());
        assert!(wake_ups.hears(&OwnerId::new("a:1")));
        assert!(wake_ups.stop_listening("a", second).is_some());
        assert!(!wake_ups.hears(&OwnerId::new("a:1")));
    }

    #[test]
    fn only_wake_ups_that_somebody_would_hear_count_as_lost() {
        let (mut wake_ups, lock) = (WakeUps::default(), LockName::new("x").unwrap());
        wake_ups.listen("a", Arc::new(Deaf));
        wake_ups.lose_next(1);
        wake_ups.tell(&OwnerId::new("b:1"), WakeUp::Recheck { lock: lock.clone() });
        wake_ups.tell(&OwnerId::new("a:1"), WakeUp::Recheck { lock: lock.clone() });
        assert!(wake_ups.take_outgoing().is_empty());
        wake_ups.tell(&OwnerId::new("a:1"), WakeUp::Recheck { lock });
        assert_eq!(wake_ups.take_outgoing().len(), 1);
    }
}
