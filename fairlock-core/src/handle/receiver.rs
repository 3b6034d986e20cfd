//! The end of a channel at which a program hears of a loss, or that a request is decided.

use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// A channel that a program listens to, with the calls and errors of std's. Of [`Guard::lost`](crate::Guard::lost) and
/// [`Request::decided`](crate::Request::decided). Clones share the messages: each message goes to one of them.
///
/// With feature `crossbeam-channel-0_5` it can stand in a `select!` of the crate `crossbeam-channel`.
#[derive(Clone, Debug)]
pub struct Receiver<T>(crossbeam_channel::Receiver<T>);

impl<T> Receiver<T> {
    pub(super) fn new(channel: crossbeam_channel::Receiver<T>) -> Receiver<T> {
        Receiver(channel)
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// When the channel is closed, and has no message.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv().map_err(|_| RecvError)
    }

    /// Waits for a message, at most `timeout`.
    ///
    /// # Errors
    /// When the time is over; and as [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.0.recv_timeout(timeout).map_err(|error| match error {
            crossbeam_channel::RecvTimeoutError::Timeout => RecvTimeoutError::Timeout,
            crossbeam_channel::RecvTimeoutError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Takes a message that is there.
    ///
    /// # Errors
    /// When there is none; and as [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv().map_err(|error| match error {
            crossbeam_channel::TryRecvError::Empty => TryRecvError::Empty,
            crossbeam_channel::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// The channel of the crate `crossbeam-channel` 0.5, for its `select!`. A later major version of `crossbeam-channel` gets its own
    /// feature and method here, and fairlock keeps its major version.
    #[cfg(feature = "crossbeam-channel-0_5")]
    pub fn as_crossbeam(&self) -> &crossbeam_channel::Receiver<T> {
        &self.0
    }
}
