//! The settings that all connections of a backend share, and how a setting is checked.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlock_core::backend::{BackendError, BackendErrorKind, in_words};
use redis::{Cmd, Value};

use super::connection::{Failure, Timeouts};

/// The settings for all servers, and their counters.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) timeouts: Timeouts,
    /// How long the first connection, and each client's first subscription, are tried again.
    pub(crate) connect_within: Duration,
    /// How many connections to each server carry commands.
    pub(crate) connections: usize,
    /// How many connections to a server that is far away.
    pub(crate) connections_if_far: usize,
    pub(crate) greeting: Option<Arc<dyn Greeting>>,
    /// With these times, a request is sent only to a server that a majority has named.
    pub(crate) majority: Option<MajorityTerms>,
    pub(super) reconnects: Arc<AtomicU64>,
}

/// A question that each connection asks when it opens, and again with the ping after a pause. So it costs no further trip.
pub(crate) trait Greeting: Debug + Send + Sync {
    /// The question; none if there is nothing to ask any more.
    fn question(&self) -> Option<Cmd>;

    fn answered(&self, reply: Result<Value, Failure>);
}

/// When a majority of the sentinels, or of a cluster's nodes, proves that a server is the master.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MajorityTerms {
    /// How long ago the majority may have been asked when a request is sent.
    pub(crate) proof_age: Duration,
    /// A voter that has been up for less may have forgotten what it said last, and does not count.
    pub(crate) least_uptime: Duration,
}

impl Settings {
    pub(crate) fn new(timeouts: Timeouts, connections: usize) -> Settings {
        Settings {
            timeouts,
            connect_within: Duration::ZERO,
            connections,
            connections_if_far: connections,
            greeting: None,
            majority: None,
            reconnects: Arc::default(),
        }
    }

    /// How many connections were opened again after a loss.
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks a time that a program configures.
///
/// # Errors
/// `InvalidConfig` for a time that is out of range.
pub(crate) fn in_range(
    setting: &'static str,
    time: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<(), BackendError> {
    if allowed.contains(&time) {
        return Ok(());
    }
    let [time, least, most] = [time, *allowed.start(), *allowed.end()].map(in_words);
    Err(invalid(format!("the time is {time}, it has to be from {least} to {most}")).about_setting(setting))
}

pub(crate) fn invalid(what: String) -> BackendError {
    BackendError::new(BackendErrorKind::InvalidConfig, what)
}
