//! What a subscriber and its thread share, and where messages leave the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;

use super::channels::Channels;
use super::endpoints::Endpoints;
use crate::net::connection::Timeouts;

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

pub(super) type OnEvent = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The word that wakes the listener's thread. The listener takes up changes after every message, and does not pass
/// this one on.
pub(super) const NUDGE: &[u8] = b"nudge";

pub(super) struct Shared {
    pub(super) endpoints: Arc<dyn Endpoints>,
    pub(super) timeouts: Timeouts,
    pub(super) own_channel: String,
    pub(super) channels: Channels,
    pub(super) reconnects: AtomicU64,
    /// True from the loss of the subscription until the next one is confirmed.
    pub(super) cut_off: AtomicBool,
    /// None once the subscriber is dropped.
    pub(super) on_event: Mutex<Option<OnEvent>>,
}

impl Shared {
    /// Holds no lock during the callback, which may drop the subscriber.
    pub(super) fn deliver(&self, event: &Event<'_>) {
        let on_event = self.on_event.lock().clone();
        if let Some(on_event) = on_event {
            on_event(event);
        }
    }
}
