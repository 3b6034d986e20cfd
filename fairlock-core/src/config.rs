//! What a builder has settled for a client.

use std::sync::Arc;
use std::time::Duration;

use crate::Clock;
use crate::stop::Stop;

/// See the setters of [`ClientBuilder`](crate::ClientBuilder).
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) lease: Duration,
    pub(crate) place_ttl: Duration,
    pub(crate) outage_limit: Duration,
    /// The backend's.
    pub(crate) attempt_ttl: Option<Duration>,
    pub(crate) label: Arc<str>,
    pub(crate) clock: Clock,
    /// Once it is set, no message and no answer makes a claim a hold: see `State::hold`.
    pub(crate) stop: Stop,
}
