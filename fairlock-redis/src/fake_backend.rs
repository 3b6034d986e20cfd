//! A backend with a fake server: a test says what the server replies to scripts. And the lock, owner and request of such tests.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{Hold, LockId, Place, RequestId, Wake, WakeSink};
use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};
use parking_lot::Mutex;
use redis::Value;

use crate::backend::{RedisBackend, Rules};
use crate::builder::{Discipline, RedisBuilder};
use crate::hand_off::HandOff;
use crate::net::test_server::{Act, FakeServer, polite};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn named(name: &str, kind: LockKind) -> LockId {
    LockId::new(LockName::new(name).unwrap(), kind)
}

/// The lock `a` of this kind.
pub(crate) fn id(kind: LockKind) -> LockId {
    named("a", kind)
}

pub(crate) fn owner() -> OwnerId {
    OwnerId::new("u:1")
}

pub(crate) fn place<'a>(lock: &'a LockId, owner: &'a OwnerId) -> Place<'a> {
    Place::new(lock, owner, RequestId::new(0x1f))
}

pub(crate) fn hold<'a>(lock: &'a LockId, owner: &'a OwnerId) -> Hold<'a> {
    Hold::new(lock, owner, RequestId::new(0x1f), FencingToken::new(7))
}

/// A text in a reply.
pub(crate) fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// A script that the server was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) sha: String,
    pub(crate) keys: Vec<String>,
    pub(crate) arguments: Vec<String>,
}

/// A backend whose server replies to a script with this hash and these keys; and the list of the scripts that were called.
pub(crate) fn with(
    discipline: Discipline,
    reply: impl Fn(&str, &[String]) -> String + Send + Sync + 'static,
) -> (RedisBackend, Arc<Mutex<Vec<Ran>>>) {
    of(|builder| builder.discipline(discipline), reply)
}

/// Such a backend, built with these settings.
pub(crate) fn of(
    build: impl FnOnce(RedisBuilder) -> RedisBuilder,
    reply: impl Fn(&str, &[String]) -> String + Send + Sync + 'static,
) -> (RedisBackend, Arc<Mutex<Vec<Ran>>>) {
    let ran: Arc<Mutex<Vec<Ran>>> = Arc::default();
    let notes = Arc::clone(&ran);
    let server = FakeServer::start(move |_, words| match words[0].as_str() {
        "EVALSHA" => {
            let (keys, arguments) = words[3..].split_at(words[2].parse().unwrap());
            let reply = reply(&words[1], keys);
            let (sha, keys, arguments) = (words[1].clone(), keys.to_vec(), arguments.to_vec());
            notes.lock().push(Ran { sha, keys, arguments });
            Act::Say(reply)
        }
        "HGET" => Act::Say("$-1\r\n".to_owned()), // nothing to see of others
        _ => polite(words),
    });
    let builder = RedisBackend::builder(&format!("redis://{}", server.address()));
    (build(builder).connect().unwrap(), ran)
}

/// The rules of the locks with a queue, by discipline `HandOff`.
pub(crate) fn hand_off(backend: &RedisBackend) -> &HandOff {
    match &backend.0.fair {
        Rules::HandOff(rules) => rules,
        #[cfg(feature = "redisson")]
        Rules::Redisson(_) => panic!("other rules"),
    }
}

/// The client of a test, which keeps what it is told.
#[derive(Default)]
pub(crate) struct RecordedWakeUps(pub(crate) Mutex<Vec<String>>);

impl WakeSink for RecordedWakeUps {
    fn wake(&self, wake: Wake<'_>) {
        self.0.lock().push(format!("{wake:?}"));
    }
}
