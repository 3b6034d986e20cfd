//! A subscriber: a connection and a thread (`fairlock-listen`) that receive what is published on its channels.
//!
//! One channel is the client's own and stays subscribed; others come and go. The thread sleeps in a read, and a TLS
//! connection cannot be written to meanwhile. So a caller that wants another channel publishes the word `nudge` on
//! the client's own channel, and the thread wakes and subscribes.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Value, cmd};

use super::channels::Channels;
use super::listener::{Link, TICK, listen};
use super::{Endpoints, Hears, NUDGE, OnEvent, Shared};
use crate::net::connection::{Failure, Timeouts};

/// Listens until it is dropped. The drop does not wait: it releases the callback, and nothing more is delivered but a
/// message whose delivery is under way. The thread ends within a tick (500 ms), or, while it connects, subscribes or
/// pings, within the time-out of that.
pub(crate) struct Subscriber {
    shared: Arc<Shared>,
}

impl Subscriber {
    /// Connects, subscribes to `own_channel`, and returns once the server has confirmed that, within connect +
    /// response time-out; after that time it tries no further endpoint. The subscriber's thread calls `on_event` with
    /// no lock held; the callback must neither block nor panic.
    ///
    /// # Errors
    /// `Refused` when the server refuses the user or the channel, else `NotSent`.
    pub(crate) fn start(
        endpoints: Arc<dyn Endpoints>,
        timeouts: Timeouts,
        own_channel: String,
        on_event: OnEvent,
    ) -> Result<Subscriber, Failure> {
        let shared = Arc::new(Shared {
            endpoints,
            timeouts,
            own_channel,
            channels: Channels::default(),
            hears: Mutex::new(Hears::Nothing),
            on_event: Mutex::new(Some(on_event)),
        });
        let link = first_link(&shared).map_err(Failure::before_sending)?;
        shared.is_heard();
        let subscriber = Subscriber { shared: Arc::clone(&shared) };
        std::thread::Builder::new()
            .name("fairlock-listen".to_owned())
            .spawn(move || listen(&shared, link))
            .map_err(|error| Failure::NotSent(format!("can't start the thread for wake-ups ({error})").into()))?;
        Ok(subscriber)
    }

    /// Listens on `channel` as well, until [`unwant`](Self::unwant) was called as often as this succeeded. Returns
    /// when the server has confirmed it, or at once if the channel is already subscribed. While the subscriber is cut
    /// off, channels that were live still count as live: the [`Event::Gap`](super::Event::Gap) that follows covers
    /// what they miss.
    ///
    /// `send` sends the packed command to a server that passes it on to the subscriber. The call takes at most the
    /// time of `send`, plus a tick and one response time-out.
    ///
    /// # Errors
    /// `Refused`, which names the channel, when the user may not listen there; `NotSent` when the server is down;
    /// `Broken` when it did not answer in time. The interest does not count then.
    pub(crate) fn want(
        &self,
        channel: &str,
        send: impl FnOnce(Vec<u8>) -> Result<Value, Failure>,
    ) -> Result<(), Failure> {
        let Shared { own_channel, channels, timeouts, .. } = &*self.shared;
        if channels.want(channel) {
            return Ok(());
        }
        // Sent after the interest was recorded. A sleeping listener is woken and finds the interest. A running listener checks
        // again before it sleeps, and this message keeps it awake.
        let nudge = send(cmd("PUBLISH").arg(own_channel).arg(NUDGE).get_packed_command());
        match nudge {
            Err(failure @ Failure::NotSent(_)) => {
                channels.unwant(channel);
                return Err(failure);
            }
            // PUBLISH may be denied, or the nudge lost: the listener checks at each tick anyway.
            Err(failure) => {
                log::debug!(target: "fairlock::wake", event = "no nudge", error:% = failure; "no nudge: {failure}")
            }
            Ok(_) => {}
        }
        let verdict = channels.verdict(channel, Instant::now() + TICK + timeouts.response);
        verdict.map_err(|failure| failure.within_response(timeouts.response))
    }

    /// Ends one interest in a channel. After the last one the thread unsubscribes when it next wakes.
    pub(crate) fn unwant(&self, channel: &str) {
        self.shared.channels.unwant(channel);
    }

    /// Whether messages arrive, as far as the thread has noticed.
    pub(crate) fn hears(&self) -> Hears {
        *self.shared.hears.lock()
    }
}

/// Connects to any of the endpoints, within this time.
fn first_link(shared: &Shared) -> Result<Link, Failure> {
    let until = Instant::now() + shared.timeouts.connect + shared.timeouts.response;
    for _ in 1..shared.endpoints.count() {
        match Link::open(shared) {
            Err(_) if Instant::now() < until => {}
            opened => return opened,
        }
    }
    Link::open(shared)
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let on_event = self.shared.on_event.lock().take();
        self.shared.channels.end();
        drop(on_event); // with no lock held, since the drop may run other code
    }
}

#[cfg(feature = "night")]
#[cfg(test)]
mod tests;
