//! The subscribed clients, and the delivery of wake-ups.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use fairlock_core::OwnerId;
use fairlock_core::backend::WakeSink;
use fairlock_rules::WakeUp;

struct Subscriber {
    sink: Arc<dyn WakeSink>,
    /// Tells the client's subscriptions apart.
    number: u64,
}

/// Who is subscribed. All shards share it, behind its own mutex.
#[derive(Default)]
pub(crate) struct WakeUps(Mutex<Listeners>);

/// The listeners by client, as owners spell it.
#[derive(Default)]
struct Listeners {
    by_client: HashMap<Box<str>, Subscriber>,
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
        let replaced = listeners.by_client.insert(client.into(), Subscriber { sink, number });
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
        self.0.lock().sink(owner.client()).is_some()
    }

    /// Tells the owner's client, if it is subscribed. All mutexes must be free: a sink is foreign code.
    pub(crate) fn deliver(&self, wake_up: &WakeUp) {
        let sink = self.0.lock().sink_to_tell(wake_up.owner.client());
        if let Some(sink) = sink {
            sink.wake(wake_up.as_wake());
        }
    }

    pub(crate) fn lose_next(&self, times: usize) {
        let mut listeners = self.0.lock();
        listeners.to_lose = listeners.to_lose.saturating_add(times);
    }

    pub(crate) fn cut_off(&self, client: &str) {
        self.0.lock().cut_off.insert(client.into());
    }

    /// The client is back: tell it that it may have missed wake-ups.
    pub(crate) fn bring_back(&self, client: &str) -> Option<Arc<dyn WakeSink>> {
        let mut listeners = self.0.lock();
        if !listeners.cut_off.remove(client) {
            return None;
        }
        listeners.sink_to_tell(client)
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

    /// The client's sink, unless what it would be told is lost.
    fn sink_to_tell(&mut self, client: &str) -> Option<Arc<dyn WakeSink>> {
        let sink = Arc::clone(self.sink(client)?);
        if self.to_lose > 0 {
            self.to_lose -= 1;
            return None;
        }
        Some(sink)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use fairlock_core::LockName;
    use fairlock_core::backend::Wake;
    use fairlock_rules::WakeUpKind;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl WakeSink for Counter {
        fn wake(&self, _: Wake<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_late_end_of_a_subscription_leaves_the_one_that_replaced_it() {
        let wake_ups = WakeUps::default();
        let (first, _) = wake_ups.listen("a", Arc::new(Counter::default()));
        let (second, replaced) = wake_ups.listen("a", Arc::new(Counter::default()));
        assert!(replaced.is_some());
        assert!(wake_ups.stop_listening("a", first).is_none());
        assert!(wake_ups.is_subscribed(&OwnerId::new("a:1")));
        assert!(wake_ups.stop_listening("a", second).is_some());
        assert!(!wake_ups.is_subscribed(&OwnerId::new("a:1")));
    }

    #[test]
    fn only_wake_ups_of_a_subscribed_client_count_as_lost() {
        let (wake_ups, heard) = (WakeUps::default(), Arc::new(Counter::default()));
        wake_ups.listen("a", heard.clone());
        wake_ups.lose_next(1);
        let heard_after = |owner| {
            let (lock, owner) = (LockName::new("x").unwrap(), OwnerId::new(owner));
            wake_ups.deliver(&WakeUp { lock, owner, kind: WakeUpKind::RecheckAny });
            heard.0.load(Ordering::SeqCst)
        };
        assert_eq!([heard_after("b:1"), heard_after("a:1"), heard_after("a:1")], [0, 0, 1]);
    }
}
