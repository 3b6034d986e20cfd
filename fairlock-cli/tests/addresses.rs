//! Addresses that lead to no server: what is wrong with them, and by what they are set.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::Command;

use support::{FAIRLOCK, text};

/// The exit code and what is said, with this in FAIRLOCK_REDIS and these options.
fn said(set: Option<&str>, options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(FAIRLOCK);
    command.args(["show", "x"]).args(options).env_remove("FAIRLOCK_REDIS");
    if let Some(set) = set {
        command.env("FAIRLOCK_REDIS", set);
    }
    let output = command.output().unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_port_where_nothing_listens_asks_for_the_server_and_says_what_names_it() {
    let nowhere = "redis://127.0.0.1:1";
    let refused = "fairlock: the server is unavailable: Redis at 127.0.0.1:1, connecting: Connection refused (os error 111); is \
                   Redis running there? (--redis, FAIRLOCK_REDIS)\n";
    for (set, options) in [(Some(nowhere), &[][..]), (None, &["--redis", nowhere])] {
        assert_eq!(said(set, options), (Some(122), refused.to_owned()));
    }
}

#[test]
fn an_address_that_can_not_be_read_names_the_wrong_part() {
    let empty = |origin| {
        format!(
            "fairlock: {origin} is empty: it has to be an address in one of the forms that `fairlock --help` lists\n"
        )
    };
    assert_eq!(said(Some(""), &[]), (Some(125), empty("FAIRLOCK_REDIS")));
    assert_eq!(said(None, &["--redis", ""]), (Some(125), empty("--redis")));
    let database = "fairlock: invalid configuration: the server's address can't be read: the database \"abc\" is not a number\n";
    assert_eq!(said(Some("redis://127.0.0.1:1/abc"), &[]), (Some(125), database.to_owned()));
}
