//! Errors in one short line, for messages and logs.

use std::io::{Error, ErrorKind};

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

#[cfg(test)]
mod tests {
    use super::*;

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
