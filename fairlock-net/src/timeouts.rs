//! The time limits for a server, and their names in errors.

use std::time::Duration;

/// The time limits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a usable connection: look-up of the host's name, TCP, TLS and the greeting together.
    pub connect: Duration,
    /// For all answers to one batch of requests.
    pub response: Duration,
}

/// The cause with the time that was over: `no answer in time` becomes `no answer within 1s`. What reads and writes knows its deadline alone,
/// so its errors say `in time`. None for another cause.
pub fn within(cause: &str, limit: Duration) -> Option<String> {
    cause.rsplit_once("in time").map(|(cause, then)| format!("{cause}within {limit:?}{then}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::NO_ANSWER;

    #[test]
    fn the_time_that_was_over_is_named() {
        let second = Duration::from_secs(1);
        assert_eq!(within(NO_ANSWER, second).as_deref(), Some("no answer within 1s"));
        assert_eq!(within("connection refused", second), None);
    }
}
