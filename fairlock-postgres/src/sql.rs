//! The statements: each is a text in `sql/`, with its condition and its reasons, which are not sent.

use std::sync::LazyLock;

macro_rules! texts {
    ($($name:ident $file:literal)*) => {$(
        pub(crate) static $name: LazyLock<String> =
            LazyLock::new(|| without_comments(include_str!(concat!("../sql/", $file, ".sql"))));
    )*};
}

texts! {
    ACQUIRE "fast/acquire"
    RELEASE "fast/release"
    RENEW "fast/renew"
    LOAD "step/load"
    INSERT "step/insert"
    WRITE "step/write"
    CHANGED "look/changed"
    LIST "look/list"
    SWEEP "sweep"
    LIMITS "session/limits"
    OWN "session/own"
    OPENED "session/opened"
    SERVER "session/server"
}

/// [`LOAD`] without a wait: it passes over locked rows.
pub(crate) static LOAD_FREE: LazyLock<String> =
    LazyLock::new(|| LOAD.replace("for update", "for update skip locked"));

/// Sends a message to those who listen on a channel.
pub(crate) const NOTIFY: &str = "select pg_notify($1, $2)";

fn without_comments(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.starts_with("--")).collect();
    lines.join(" ")
}
