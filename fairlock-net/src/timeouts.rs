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

/// Names the setting whose time was over: `no answer in time` becomes `no answer within 1s (connect_timeout)`. What reads and writes
/// knows its deadline alone, so its errors say `in time`. Another cause stays as it is.
pub fn within(cause: &str, limit: Duration, setting: &str) -> String {
    cause.replace("in time", &format!("within {limit:?} ({setting})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::NO_ANSWER;

    #[test]
    fn the_setting_is_named_whose_time_was_over() {
        let second = Duration::from_secs(1);
        assert_eq!(within(NO_ANSWER, second, "a_timeout"), "no answer within 1s (a_timeout)");
        assert_eq!(within("connection refused", second, "a_timeout"), "connection refused");
    }
}
