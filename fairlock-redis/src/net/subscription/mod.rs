//! Wake-ups: a connection and a thread (`fairlock-listen`) that receive what is published on the channels of one client.
//!
//! One channel is the client's own and stays subscribed; others come and go. The thread sleeps in a read, and a TLS
//! connection cannot be written to meanwhile. So a caller that wants another channel publishes the word `nudge` on
//! the client's own channel, and the thread wakes and subscribes.
//!
//! `listener.rs` has the thread. The listener alone subscribes and unsubscribes: it takes the changes from [`Channels`], and keeps track of
//! the server's confirmations. A channel is live only while it is wanted *and* the listener has seen the confirmation. The step that ends
//! the last interest in a channel also ends "live", before the listener learns of the change. So no caller is told "live" of a channel
//! that is about to be unsubscribed.

mod listener;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use redis::{Value, cmd};

use listener::{SubscribedConnection, TICK, listen};

use super::connection::{Address, Failure, Timeouts};

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
    /// off, channels that were live still count as live: the [`Event::Gap`] that follows covers
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
fn first_link(shared: &Shared) -> Result<SubscribedConnection, Failure> {
    let until = Instant::now() + shared.timeouts.connect + shared.timeouts.response;
    for _ in 1..shared.endpoints.count() {
        match SubscribedConnection::open(shared) {
            Err(_) if Instant::now() < until => {}
            opened => return opened,
        }
    }
    SubscribedConnection::open(shared)
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let on_event = self.shared.on_event.lock().take();
        self.shared.channels.end();
        drop(on_event); // with no lock held, since the drop may run other code
    }
}

/// The servers at which a subscriber receives every message it needs.
pub(crate) trait Endpoints: Send + Sync {
    /// The server to try next; called once for each attempt to connect.
    ///
    /// # Errors
    /// There is none at the moment.
    fn next(&self) -> Result<Address, Failure>;

    /// Whether a subscriber at this server still receives everything. It asks at each tick, and moves if not. Must
    /// not block.
    fn serves(&self, _at: &Address) -> bool {
        true
    }

    /// Grows when the servers behind the addresses may have changed: a subscriber that connected before moves, at the next tick. Must
    /// not block.
    fn era(&self) -> u64 {
        0
    }

    /// How many servers a starting subscriber tries before it gives up.
    fn count(&self) -> usize {
        1
    }
}

/// What a subscriber passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    Message {
        channel: &'a [u8],
        payload: &'a [u8],
    },
    /// The connection was lost and is back, with all its channels; messages published meanwhile are lost.
    Gap,
}

/// Whether a subscriber hears what is published, as far as its thread has noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hears {
    /// The server last proved at this time that it passes messages on.
    At(Instant),
    /// From the loss of the subscription until the next one is confirmed.
    Nothing,
}

pub(crate) type OnEvent = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The word that wakes the listener's thread. The listener takes up changes after every message, and does not pass
/// this one on.
const NUDGE: &[u8] = b"nudge";

struct Shared {
    endpoints: Arc<dyn Endpoints>,
    timeouts: Timeouts,
    own_channel: String,
    channels: Channels,
    hears: Mutex<Hears>,
    /// None once the subscriber is dropped.
    on_event: Mutex<Option<OnEvent>>,
}

impl Shared {
    /// The server has just proved that the subscription is there. Returns the time.
    fn is_heard(&self) -> Instant {
        let now = Instant::now();
        *self.hears.lock() = Hears::At(now);
        now
    }

    /// Holds no lock during the callback, which may drop the subscriber.
    fn deliver(&self, event: &Event<'_>) {
        let on_event = self.on_event.lock().clone();
        if let Some(on_event) = on_event {
            on_event(event);
        }
    }
}

/// The wanted channels, how many callers want each, and what the server said: shared by callers and listener.
#[derive(Default)]
struct Channels {
    state: Mutex<ChannelsState>,
    /// Signals a verdict, or the end.
    changed: Condvar,
}

#[derive(Default)]
struct ChannelsState {
    wanted: HashMap<String, Interest>,
    /// Channels whose interest began or ended since the listener last took the changes.
    touched: HashSet<String>,
    ended: bool,
}

struct Interest {
    count: usize,
    /// What the server said: the channel is live, or refused. None as long as that is open.
    verdict: Option<Result<(), Failure>>,
}

impl Channels {
    /// Counts an interest in the channel; true if the channel is live. If not, the caller has to wake the listener *after* this
    /// call, so that the listener finds the interest, and wait for the [`verdict`](Self::verdict).
    fn want(&self, channel: &str) -> bool {
        let mut state = self.state.lock();
        let interest = match state.wanted.get_mut(channel) {
            Some(interest) => interest,
            None => {
                let new = Interest { count: 0, verdict: None };
                state.wanted.entry(channel.to_owned()).or_insert(new)
            }
        };
        interest.count += 1;
        if interest.verdict == Some(Ok(())) {
            return true;
        }
        // Also after a refusal: the rights may have changed, and each attempt asks once.
        interest.verdict = None;
        state.touched.insert(channel.to_owned());
        false
    }

    /// Waits until a wanted channel is live, or refused. On failure the interest ends.
    fn verdict(&self, channel: &str, until: Instant) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let said =
            |state: &ChannelsState| state.wanted.get(channel).and_then(|interest| interest.verdict.clone());
        let is_open = |state: &mut ChannelsState| !state.ended && said(state).is_none();
        self.changed.wait_while_until(&mut state, is_open, until);
        let verdict = said(&state).unwrap_or_else(|| {
            Err(match state.ended {
                true => Failure::NotSent("the listener has ended".into()),
                false => Failure::Broken("no answer to a subscription in time".into()),
            })
        });
        if verdict.is_err() {
            state.unwant(channel);
        }
        verdict
    }

    fn unwant(&self, channel: &str) {
        self.state.lock().unwant(channel);
    }

    /// For the listener: the channels that have changed since its last call, and whether they are wanted now. None if it has to end.
    fn take_changes(&self) -> Option<Vec<(String, bool)>> {
        let mut state = self.state.lock();
        let touched = std::mem::take(&mut state.touched).into_iter();
        let changed = touched.map(|channel| (state.wanted.contains_key(&channel), channel));
        (!state.ended).then(|| changed.map(|(wanted, channel)| (channel, wanted)).collect())
    }

    /// For the listener on a new connection: all wanted channels, with every change until now.
    fn all(&self) -> Vec<(String, bool)> {
        let mut state = self.state.lock();
        state.touched.clear();
        state.wanted.keys().map(|channel| (channel.clone(), true)).collect()
    }

    /// For the listener: the server has confirmed or refused the channel. That is not kept for a channel that is no
    /// longer wanted; the end of the interest is among the changes.
    fn settle(&self, channel: &str, verdict: Result<(), Failure>) {
        if let Some(interest) = self.state.lock().wanted.get_mut(channel) {
            interest.verdict = Some(verdict);
            self.changed.notify_all();
        }
    }

    /// The subscriber was dropped, or its thread ended: waiting callers fail, and the listener ends at its next check.
    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// For the listener: sleeps until then; false if it has to end.
    fn pause(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_until(&mut state, |state| !state.ended, until);
        !state.ended
    }
}

impl ChannelsState {
    fn unwant(&mut self, channel: &str) {
        let Some(interest) = self.wanted.get_mut(channel) else { return };
        interest.count -= 1;
        if interest.count == 0 {
            // It stops being live here. A caller that wants it again before the listener checks makes a new, open
            // interest. The listener decides on that by what the server confirmed: the channel is still subscribed and
            // live at once, or is being unsubscribed and is subscribed again after that.
            self.wanted.remove(channel);
            self.touched.insert(channel.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
