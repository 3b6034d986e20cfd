//! Where a server listens, the parts of the URL that says so, and what errors say of the server: one short line. No error repeats a part of
//! a URL: a password that was not encoded may stand in any part. Where a server repeats a password in its own words, the password is hidden.

use std::cmp::Reverse;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a server is reached. `Display` shows `host:port`, `[address]:port` or the path, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Over TCP.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Over a Unix socket, at this path.
    Unix(PathBuf),
}

impl Endpoint {
    /// The host, if it is reached over TCP.
    pub fn host(&self) -> Option<&str> {
        match self {
            Endpoint::Tcp { host, .. } => Some(host),
            Endpoint::Unix(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self {
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            Endpoint::Unix(path) => path.display().to_string(),
        };
        // It comes from a setting and is shown in one-line messages.
        f.write_str(&shown.replace(char::is_control, " "))
    }
}

/// Whether a user or password contains a delimiter of URLs as it is: then the `@` stands behind what looks like the host. `rest` is
/// the URL from after its `://`.
pub fn bare_delimiter(rest: &str) -> Option<&'static str> {
    let (at, end) = (rest.find(['/', '?', '#'])?, rest.rfind('@')?);
    match &rest[at..=at] {
        _ if end < at => None,
        "/" => Some("there is a / before the @; in a user or password it is written %2F"),
        "?" => Some("there is a ? before the @; in a user or password it is written %3F"),
        _ => Some("there is a # before the @; in a user or password it is written %23"),
    }
}

/// A part of a URL as it is meant; none if a `%` stands before anything but two hexadecimal digits, or the bytes are no UTF-8.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).filter(|(code, _)| !code.starts_with('+'))?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// In place of a secret.
const HIDDEN: &str = "***";

/// A password, as it is and as URLs have it. By default there is none.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[String]>);

impl Secrets {
    /// All spellings of this password.
    pub fn of(password: &str) -> Secrets {
        let mut spellings = vec![password.to_owned()];
        for plain in ["-._~", "-._~!$&'()*+,;="] {
            // The hexadecimal digits may be small.
            spellings.push(encoded(password, plain, |byte| format!("%{byte:02X}")));
            spellings.push(encoded(password, plain, |byte| format!("%{byte:02x}")));
        }
        spellings.retain(|spelling| !spelling.is_empty());
        // The longest first: one may begin with another.
        spellings.sort_by_key(|spelling| Reverse(spelling.len()));
        spellings.dedup();
        Secrets(spellings.into())
    }

    /// The text without them.
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

/// Percent-encoded, except letters, digits and these.
fn encoded(text: &str, plain: &str, code: impl Fn(u8) -> String) -> String {
    let one = |byte: u8| match char::from(byte) {
        c if c.is_ascii_alphanumeric() || plain.contains(c) => c.to_string(),
        _ => code(byte),
    };
    text.bytes().map(one).collect()
}

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
    fn it_is_shown_in_one_line() {
        let tcp = |host: &str| Endpoint::Tcp { host: host.to_owned(), port: 7 };
        for (endpoint, shown) in [
            (tcp("a.host"), "a.host:7"),
            (tcp("::1"), "[::1]:7"),
            (tcp("two\nlines"), "two lines:7"),
            (Endpoint::Unix("/run/a server".into()), "/run/a server"),
        ] {
            assert_eq!(endpoint.to_string(), shown);
        }
        assert_eq!((tcp("a.host").host(), Endpoint::Unix("/run".into()).host()), (Some("a.host"), None));
    }

    #[test]
    fn a_part_of_a_url_is_decoded_or_refused() {
        for (text, meant) in [("", ""), ("a+b", "a+b"), ("%40%2fx%C3%A4", "@/xä")] {
            assert_eq!(percent_decoded(text).as_deref(), Some(meant));
        }
        for wrong in ["%", "%4", "%+4", "%4x", "%ä", "%ff"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_delimiter_that_is_not_encoded_is_found() {
        for (rest, found) in
            [("u:a/b@h:1", "%2F"), ("u:a?b@h", "%3F"), ("u:a#b@h/db", "%23"), ("u:/?#@h", "%2F")]
        {
            assert!(bare_delimiter(rest).is_some_and(|what| what.ends_with(found)), "{rest}");
        }
        for rest in ["h", "u:p@h:1/db?a=b", "u:a%2Fb@h/", "h/db", "u@h"] {
            assert_eq!(bare_delimiter(rest), None, "{rest}");
        }
    }

    #[test]
    fn each_spelling_of_a_password_is_hidden() {
        let secrets = Secrets::of("p/Q@ä'");
        for spelling in ["p/Q@ä'", "p%2FQ%40%C3%A4%27", "p%2fQ%40%c3%a4%27", "p%2FQ%40%C3%A4'"] {
            assert_eq!(secrets.hide(&format!("bad {spelling}, bad")), "bad ***, bad", "{spelling}");
        }
        assert_eq!(Secrets::of("").hide("as it is"), "as it is");
        assert_eq!(Secrets::default().hide("as it is"), "as it is");
    }

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
