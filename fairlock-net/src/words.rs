//! Errors in one short line, for messages and logs, and the time limits that these lines name.

use std::io::{Error, ErrorKind};
use std::time::Duration;

/// In words, a deadline that has passed.
pub const NO_ANSWER: &str = "no answer in time";

/// What an error of a [`Stream`](crate::Stream) says, in one short line; [`NO_ANSWER`] if its deadline has passed.
pub fn in_words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => NO_ANSWER.to_owned(),
        _ => one_line(&error.to_string()),
    }
}

/// A text that may come from the server, cut to one line of up to 200 characters.
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 200;
    let line = text.trim().replace(char::is_control, " ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

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

    #[test]
    fn the_time_that_was_over_is_named() {
        let second = Duration::from_secs(1);
        assert_eq!(within(NO_ANSWER, second).as_deref(), Some("no answer within 1s"));
        assert_eq!(within("connection refused", second), None);
    }

    #[test]
    fn a_text_is_cut_to_one_line() {
        assert_eq!(one_line(" two\r\nlines\n"), "two  lines");
        assert_eq!(one_line(&"ä".repeat(200)), "ä".repeat(200));
        assert_eq!(one_line(&"ä".repeat(201)), "ä".repeat(200) + "…");
    }

    #[test]
    fn a_deadline_that_has_passed_has_the_same_words_everywhere() {
        for kind in [ErrorKind::TimedOut, ErrorKind::WouldBlock] {
            assert_eq!(in_words(&kind.into()), NO_ANSWER);
        }
        assert_eq!(in_words(&Error::other("broken\nhere")), "broken here");
    }
}
