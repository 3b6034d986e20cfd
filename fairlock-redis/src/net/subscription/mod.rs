//! Wake-ups: a connection and a thread that listen on the channels of one client.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use self::channels::Channels;
use super::connection::{Address, Failure, Timeouts};

mod channels;
mod listener;
mod subscriber;

pub(crate) use subscriber::Subscriber;

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
