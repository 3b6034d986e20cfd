//! Which waiter listens on which of Redisson's channels: each waiter of a fair lock on its own, all waiters of a plain lock on one.

use std::collections::HashMap;

use fairlock_core::backend::{BackendError, BackendErrorKind, Place, Wake, WakeSink};
use fairlock_core::{LockName, OwnerId};
use parking_lot::Mutex;

use crate::wake_ups::{OtherChannels, WakeUps};

/// The waiters of all clients of a backend.
#[derive(Default)]
pub(crate) struct Channels(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    channels: HashMap<Waiter, String>,
    waiters: HashMap<String, Vec<Waiter>>,
}

type Waiter = (LockName, OwnerId);

fn waiter(place: &Place<'_>) -> Waiter {
    (place.lock.name.clone(), place.owner.clone())
}

/// Whether the waiter's channel was subscribed when its question was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subscribed {
    Before,
    /// A release between the answer and the subscription woke no waiter, so the caller has to ask again.
    JustNow,
}

impl Channels {
    /// Subscribes the place's owner to `channel`, until [`stop_listening`](Self::stop_listening). Blocks until the
    /// server has confirmed it.
    pub(super) fn listen(
        &self,
        wake_ups: &WakeUps,
        place: &Place<'_>,
        channel: impl FnOnce() -> String,
    ) -> Result<Subscribed, BackendError> {
        // A client without a subscription has no wake-ups to wait for.
        let Some(client) = wake_ups.client(place) else { return Ok(Subscribed::Before) };
        let waiter = waiter(place);
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
    pub(super) fn stop_listening(&self, wake_ups: &WakeUps, place: &Place<'_>) {
        let channel = self.0.lock().remove(&waiter(place));
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
        let of_client: Vec<Waiter> =
            waiting.channels.keys().filter(|(_, owner)| owner.client() == client).cloned().collect();
        of_client.iter().for_each(|waiter| drop(waiting.remove(waiter)));
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
    use crate::fake_backend::RecordedWakeUps;

    fn waiter(lock: &str, owner: &str) -> Waiter {
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
            channels.0.lock().add(waiter("a", owner), "shared");
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
        let [first, second] = ["u:1", "u:2"].map(|owner| waiter("a", owner));
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
            channels.0.lock().add(waiter("a", owner), "shared");
        }
        channels.forget("u");
        assert_eq!(told(&channels, "u", "shared", "0"), [""; 0]);
        assert_eq!(told(&channels, "v", "shared", "0"), recheck(Some("v:1")));
        assert_eq!(channels.0.lock().channels.len(), 1);
    }
}
