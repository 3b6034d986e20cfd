//! The ear of one client: a connection and a thread (`fairlock-ear`) that hear what is published on its channels.
//!
//! One channel is the client's own and is subscribed to for good; others come and go. The thread sleeps in a read,
//! and a connection with TLS can't be written to meanwhile, so who wants another channel publishes the word
//! `nudge` on the client's own one, and the thread wakes and does it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Value, cmd};

use super::channels::Channels;
use super::listener::{self, Link, TICK};
use super::{Failure, Stations, Timeouts};

/// What an ear hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    Message {
        channel: &'a [u8],
        payload: &'a [u8],
    },
    /// The connection was lost and is back, with all its channels: what was said meanwhile is lost.
    Gap,
}

pub(crate) type OnMessage = Arc<dyn Fn(&Heard<'_>) + Send + Sync>;

/// What an ear has seen.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarStats {
    /// How often it was cut off and is back.
    pub(crate) reconnects: u64,
}

/// Listens until it is dropped. That does not wait: from then on nothing more is delivered, but for a message that is
/// being delivered at that moment, and the callback is let go. The thread ends within a tick (500 ms); while it is
/// about to connect, subscribe or ping, within the time-out of that.
pub(crate) struct Ear {
    shared: Arc<Shared>,
}

/// What the thread has in common with its owner.
pub(super) struct Shared {
    pub(super) stations: Arc<dyn Stations>,
    pub(super) timeouts: Timeouts,
    pub(super) own_channel: String,
    pub(super) channels: Channels,
    pub(super) reconnects: AtomicU64,
    /// There is no subscription: from its loss until another one is confirmed.
    pub(super) deaf: AtomicBool,
    /// None once the ear is dropped.
    on_message: Mutex<Option<OnMessage>>,
}

/// What a nudge says. The listener looks for changes after whatever it hears; it does not pass this one on.
pub(super) const NUDGE: &[u8] = b"nudge";

impl Ear {
    /// Connects, subscribes to `own_channel`, and returns when the server has confirmed that, within connect +
    /// response time-out; where there are several stations, it begins with no further one after that time. `on_message` is called by the ear's thread, with no lock held; it must neither block nor
    /// panic.
    ///
    /// # Errors
    /// `Refused` when the server lets the user not in or not listen, else `NotSent`.
    pub(crate) fn start(
        stations: Arc<dyn Stations>,
        timeouts: Timeouts,
        own_channel: String,
        on_message: OnMessage,
    ) -> Result<Ear, Failure> {
        let shared = Arc::new(Shared {
            stations,
            timeouts,
            own_channel,
            channels: Channels::default(),
            reconnects: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
            on_message: Mutex::new(Some(on_message)),
        });
        // If what follows fails the dropped ear has no thread to end.
        let ear = Ear { shared: Arc::clone(&shared) };
        let link = first_link(&shared).map_err(Failure::before_sending)?;
        std::thread::Builder::new()
            .name("fairlock-ear".to_owned())
            .spawn(move || listener::listen(&shared, link))
            .map_err(|error| {
                Failure::NotSent(format!("no thread for wake-ups could be started ({error})"))
            })?;
        Ok(ear)
    }

    /// Listens on `channel` as well, until [`unwant`](Self::unwant) was called as often as this succeeded. Returns
    /// when the server has confirmed it; at once if it is listened on already. While the ear is cut off, channels
    /// that were live count as such: the [`Heard::Gap`] that follows makes good what they miss.
    ///
    /// `send` sends the packed command that it gets to a server which passes it on to the ear. It takes at most the
    /// time of that, plus a tick and one response time-out.
    ///
    /// # Errors
    /// `Refused`, which names the channel, when the user may not listen there; `NotSent` when the server is down;
    /// `Broken` when it did not answer in time. The interest is not counted then.
    pub(crate) fn want(
        &self,
        channel: &str,
        send: impl FnOnce(Vec<u8>) -> Result<Value, Failure>,
    ) -> Result<(), Failure> {
        let Shared { own_channel, channels, timeouts, .. } = &*self.shared;
        if channels.want(channel) {
            return Ok(());
        }
        // After the wish was noted: the listener that wakes by it finds the wish. The one that is awake looks again
        // before it sleeps, and this message does not let it sleep.
        let nudge = send(cmd("PUBLISH").arg(own_channel).arg(NUDGE).get_packed_command());
        match nudge {
            Err(failure @ Failure::NotSent(_)) => {
                channels.unwant(channel);
                return Err(failure);
            }
            // It may not be sent (PUBLISH is not allowed) or may have got lost: the listener looks at each tick.
            Err(failure) => {
                log::debug!(target: "fairlock::wake", event = "no nudge", error:% = failure; "no nudge: {failure}")
            }
            Ok(_) => {}
        }
        channels.verdict(channel, Instant::now() + TICK + timeouts.response)
    }

    /// Ends one interest in a channel. After the last one it is unsubscribed when the thread wakes the next time.
    pub(crate) fn unwant(&self, channel: &str) {
        self.shared.channels.unwant(channel);
    }

    /// Whether nothing can be heard, as far as the ear has noticed.
    pub(crate) fn is_deaf(&self) -> bool {
        self.shared.deaf.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> EarStats {
        EarStats { reconnects: self.shared.reconnects.load(Ordering::Relaxed) }
    }
}

/// Any station will do, but it has to be one of those tried in this time.
fn first_link(shared: &Shared) -> Result<Link, Failure> {
    let until = Instant::now() + shared.timeouts.connect + shared.timeouts.response;
    let mut left = shared.stations.count();
    loop {
        left = left.saturating_sub(1);
        match Link::open(shared) {
            Err(_) if left > 0 && Instant::now() < until => {}
            opened => return opened,
        }
    }
}

impl Shared {
    /// Delivers, with no lock held: the callback may drop the ear.
    pub(super) fn say(&self, heard: &Heard<'_>) {
        let on_message = self.on_message.lock().clone();
        if let Some(on_message) = on_message {
            on_message(heard);
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let on_message = self.shared.on_message.lock().take();
        self.shared.channels.end();
        drop(on_message); // with no lock held: what it keeps may be dropped with it
    }
}

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("channel", &self.shared.own_channel).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
