//! Addresses that lead to no server: what is wrong with them, and by what they are set.

use crate::support::{Running, fairlock};

#[test]
fn what_is_wrong_with_an_address_is_said_and_what_sets_it() {
    let nowhere = "redis://127.0.0.1:1";
    let refused = "the store is unavailable: Redis at 127.0.0.1:1, connecting: Connection refused (os error 111); is \
                   Redis running there? (--redis, FAIRLOCK_REDIS)";
    let is_empty = "is empty: it has to be an address in one of the forms that `fairlock --help` lists (for PostgreSQL use --postgres)";
    let database =
        "invalid configuration: the server's address can't be read: the database \"abc\" is not a number";
    for (set, options, code, words) in [
        (Some(nowhere), &[][..], 122, refused),
        (None, &["--redis", nowhere], 122, refused),
        (Some(""), &["--redis", nowhere], 122, refused),
        (None, &["--redis", ""], 125, &format!("--redis {is_empty}")),
        (Some("redis://127.0.0.1:1/abc"), &[], 125, database),
    ] {
        let mut command = fairlock("", &[&["show", "x"], options].concat());
        command.env_remove("FAIRLOCK_REDIS").envs(set.map(|url| ("FAIRLOCK_REDIS", url)));
        Running::start(command).output().is(code, "", &format!("fairlock: {words}\n"));
    }
}
