//! The statements: each is a text in `sql/`, with its condition and its reasons, which are not sent.

use std::sync::LazyLock;

macro_rules! texts {
    ($($name:ident $file:literal)*) => {$(
        pub(crate) static $name: LazyLock<String> =
            LazyLock::new(|| without_comments(include_str!(concat!("../sql/", $file, ".sql"))));
    )*};
}

texts! {
    SWAP "swap"
    LOCK "lock"
    CHANGED "look/changed"
    LIST "look/list"
    SWEEP "sweep"
    LIMITS "session/limits"
    OWN "session/own"
    OPENED "session/opened"
    SERVER "session/server"
}

/// Sends a message to those who listen on a channel.
pub(crate) const NOTIFY: &str = "select pg_notify($1, $2)";
/// The same, if a swap before it in the session was done.
pub(crate) const NOTIFY_IF: &str = "select pg_notify($1, $2) where current_setting($3, true) = $4";

fn without_comments(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.starts_with("--")).collect();
    lines.join(" ")
}
