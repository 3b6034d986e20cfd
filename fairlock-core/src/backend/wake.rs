//! What a backend tells a client without being asked.

use std::any::Any;

use super::RequestId;
use crate::ids::FencingToken;

/// A wake-up. All are hints but `Granted`, which counts only for the request that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake<'a> {
    /// The releaser made this waiter the holder.
    Granted {
        /// The name of the lock.
        lock: &'a str,
        /// The new holder.
        owner: &'a str,
        /// Its request.
        request: RequestId,
        /// Its fencing token.
        token: FencingToken,
    },
    /// The lock may be free: ask again.
    Recheck {
        /// The name of the lock.
        lock: &'a str,
        /// The owner that has to ask; none for any one waiter.
        owner: Option<&'a str>,
    },
    /// The hold with this token was taken away.
    Taken {
        /// The name of the lock.
        lock: &'a str,
        /// The former holder.
        owner: &'a str,
        /// The token of the hold.
        token: FencingToken,
    },
    /// Messages may have been missed: everything has to be renewed.
    Gap,
}

/// Where a backend delivers wake-ups.
pub trait WakeSink: Send + Sync {
    /// Takes a wake-up, from any thread, without blocking. Call it while you hold no mutex of your own.
    fn wake(&self, wake: Wake<'_>);
}

/// A subscription of a client. Its drop ends it, without waiting.
#[derive(Debug)]
pub struct Subscription(#[expect(dead_code, reason = "kept for its drop")] Box<dyn Any + Send + Sync>);

impl Subscription {
    /// A subscription that ends when `keep` is dropped.
    pub fn new(keep: impl Any + Send + Sync) -> Subscription {
        Subscription(Box::new(keep))
    }
}
