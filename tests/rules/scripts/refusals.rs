//! The server's reasons to refuse.

use std::collections::BTreeMap;
use std::fs;

use fairlock::RedisBackend;
use fairlock::backend::BackendErrorKind;
use fairlock_tests::{RedisServer, eventually};

use super::world::{Rules, World};

/// Every command that a script uses. Without PUBLISH everything works. Without PUBSUB everything works too, but
/// deafness goes unnoticed, so the effect differs.
const COMMANDS: [&str; 23] = [
    "time", "exists", "del", "pexpire", "pttl", "hget", "hmget", "hset", "hdel", "hlen", "hgetall", "lindex",
    "lpop", "lpos", "lrange", "lrem", "llen", "rpush", "zadd", "zscore", "zrem", "zrange", "zcard",
];
const HAND_OFF_ONLY: [&str; 1] = ["zrank"];
const SILENT: [&str; 1] = ["publish"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    None,
    Full,
    /// It lacks a replica (`min-replicas-to-write`). A replica itself is left before a script runs there.
    Alone,
    CantSave,
    /// The user may not use this command.
    Command(&'static str),
    /// The user may not use this key.
    Key(&'static str),
    /// The user may publish on no channel.
    Channels,
}

impl Refusal {
    pub(crate) fn all(rules: Rules) -> Vec<Refusal> {
        let mut all =
            vec![Refusal::None, Refusal::Full, Refusal::Alone, Refusal::CantSave, Refusal::Channels];
        all.extend(COMMANDS.iter().chain(&SILENT).map(|command| Refusal::Command(command)));
        all.extend(rules.keys().iter().map(|key| Refusal::Key(key)));
        if matches!(rules, Rules::HandOff | Rules::Parts | Rules::All) {
            all.extend(HAND_OFF_ONLY.map(Refusal::Command));
        }
        all
    }

    /// Whether it is tried with keys in every state: refusals of the whole server, and of writing commands.
    pub(crate) fn is_for_every_state(self, rules: Rules) -> bool {
        let write: &[&str] = match rules {
            Rules::HandOff => &["del", "pexpire", "hset", "hdel", "zadd", "zrem"],
            // The queue is the same.
            Rules::Parts | Rules::All => &["hset", "zrem"],
            Rules::Redisson => &["del", "pexpire", "hset", "lpop", "lrem", "rpush", "zadd", "zrem"],
            Rules::Plain => &["del", "pexpire", "hset", "zadd"],
        };
        match self {
            Refusal::Command(command) => write.contains(&command),
            Refusal::Key(_) => false,
            _ => !matches!(rules, Rules::Parts | Rules::All) || self == Refusal::Full,
        }
    }

    /// Whether the whole server is affected.
    pub(crate) fn is_of_the_server(self) -> bool {
        !matches!(self, Refusal::Command(_) | Refusal::Key(_))
    }

    /// The expected kind of the error, and a word of its message.
    pub(crate) fn says(self) -> Option<(BackendErrorKind, &'static str)> {
        match self {
            Refusal::None | Refusal::Channels => None,
            Refusal::Command(command) if SILENT.contains(&command) => None,
            Refusal::Full => Some((BackendErrorKind::Refused, "OOM")),
            Refusal::Alone => Some((BackendErrorKind::Unavailable, "NOREPLICAS")),
            Refusal::CantSave => Some((BackendErrorKind::Refused, "MISCONF")),
            Refusal::Command(_) | Refusal::Key(_) => {
                Some((BackendErrorKind::Denied, "the user lacks a right"))
            }
        }
    }

    pub(crate) fn begin(self, world: &World) {
        match self {
            Refusal::Full => world.query(&["CONFIG", "SET", "maxmemory", "1"]),
            Refusal::Alone => world.query(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
            Refusal::CantSave => world.query(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]),
            _ => {}
        }
    }

    pub(crate) fn end(self, world: &World) {
        match self {
            Refusal::Full => world.query(&["CONFIG", "SET", "maxmemory", "0"]),
            Refusal::Alone => world.query(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
            Refusal::CantSave => world.query(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]),
            _ => {}
        }
    }
}

/// A server whose last save has failed, which it ignores for now.
pub(crate) fn server() -> RedisServer {
    let server = RedisServer::builder().arg("stop-writes-on-bgsave-error", "no").start();
    // A directory is in the way of the file.
    fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    server.query::<()>(&["CONFIG", "SET", "save", "86400 1"]);
    server.query::<()>(&["BGSAVE"]);
    eventually("saving has failed", || {
        server.query::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
    });
    server
}

/// The address for a user that has all rights on these keys but one.
pub(crate) fn user<'a>(
    server: &RedisServer,
    refusal: Refusal,
    keys: impl IntoIterator<Item = &'a str>,
) -> String {
    let name = format!("{refusal:?}");
    let mut words: Vec<String> =
        ["ACL", "SETUSER", &name, "reset", "on", ">canary", "+@all"].map(str::to_owned).to_vec();
    let keys = keys.into_iter().filter(|key| !matches!(refusal, Refusal::Key(denied) if denied == *key));
    words.extend(keys.map(|key| format!("~{key}")));
    words.push(if refusal == Refusal::Channels { "resetchannels" } else { "&*" }.to_owned());
    if let Refusal::Command(command) = refusal {
        words.push(format!("-{command}"));
    }
    server.query::<()>(&words.iter().map(String::as_str).collect::<Vec<_>>());
    server.url_as(&name, "canary")
}

/// A backend for each user; users with all rights share one.
pub(crate) struct Users(BTreeMap<String, RedisBackend>);

impl Users {
    pub(crate) fn new(server: &RedisServer, rules: Rules) -> Users {
        // `inspect` reads that queue, whatever the kind of the lock.
        let queue = (rules == Rules::Plain).then_some("redisson_lock_*");
        let of_users = |refusal: &Refusal| !refusal.is_of_the_server() || *refusal == Refusal::Channels;
        let users = Refusal::all(rules).into_iter().filter(of_users).map(|refusal| {
            let url = user(server, refusal, rules.keys().iter().copied().chain(queue));
            (format!("{refusal:?}"), rules.connect(&url))
        });
        Users(users.collect())
    }

    pub(crate) fn backend<'a>(&'a self, world: &'a World, refusal: Refusal) -> &'a RedisBackend {
        self.0.get(&format!("{refusal:?}")).unwrap_or(&world.backend)
    }
}
