//! The lives of the servers: their keys, the text in front of each script that looks at the life, and what a server tells of its life and
//! its grace. The log has a line when a grace is seen, and when it is over.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::backend::BackendError;
use parking_lot::Mutex;
use redis::{Value, cmd};

use crate::net::{Address, Failure, Route, Servers, tag_of_slot};
use crate::script::reply::{items, number, rank, text};
use crate::script::scripts::{Script, Text, joined, millis};

/// The key that tells whether a server has a new past. Written for durable clients only.
pub(super) const LIFE: &str = "fairlock_life";

/// The key in a cluster, where each hash slot may have its own past.
pub(super) fn key_of_slot(slot: u16) -> String {
    format!("{LIFE}:{{{}}}", tag_of_slot(slot))
}

static LOOK_AT_LIFE: LazyLock<String> = LazyLock::new(|| joined(include_str!("../../scripts/life.lua")));
/// In front of the script of a durable client.
static LIFE_OF_SCRIPT: LazyLock<String> =
    LazyLock::new(|| joined("-- @include lib/life: in_grace, end_in_grace\n"));

/// The script of a durable client. In a grace it returns {grace, ms left, its reply}.
pub(super) fn wrapped(script: &'static Script) -> &'static Text {
    script.wrapped(&LIFE_OF_SCRIPT)
}

/// The rest of the grace, if the reply tells of one, and the reply without that.
fn told(mut reply: Value) -> (Option<Duration>, Value) {
    if let Value::Array(items) = &mut reply
        && let [word, left, answer] = &mut items[..]
        && text(word).is_ok_and(|word| word == "grace")
        && let Ok(left) = rank(left)
    {
        return (Some(Duration::from_millis(left)), std::mem::replace(answer, Value::Nil));
    }
    (None, reply)
}

/// What a server knows of its past, or of that of a hash slot.
pub(crate) struct Life {
    /// The rest of the grace. None: the first request of a durable client begins the grace.
    pub(crate) left: Option<Duration>,
    /// How long the grace is. None if no durable client was ever seen.
    pub(crate) grace: Option<String>,
}

impl Life {
    fn read(reply: &Value) -> Result<Life, BackendError> {
        let row = items(reply)?;
        let left = row.first().map_or(Ok(-1), number)?;
        let grace = row.get(1).and_then(|grace| text(grace).ok()).map(str::to_owned);
        Ok(Life { left: u64::try_from(left).ok().map(Duration::from_millis), grace })
    }
}

/// The life of the server; in a cluster, of each hash slot that the server keeps. `shows_epoch`: with the epoch
/// under which a majority named the server. `end_it`: ends the grace, which is so long.
pub(crate) fn lives_of(
    servers: &Servers,
    server: &Route,
    shows_epoch: bool,
    end_it: Option<Duration>,
) -> Result<Vec<Life>, Failure> {
    /// The most hash slots that are asked about in one round trip.
    const MOST: usize = 128;
    server.pool.call(cmd("SCRIPT").arg("LOAD").arg(&*LOOK_AT_LIFE).get_packed_command())?;
    let (script, epoch) = (redis::Script::new(&LOOK_AT_LIFE), if shows_epoch { server.epoch } else { 0 });
    let pack = |key: &String| {
        let mut command = cmd("EVALSHA");
        command.arg(script.get_hash()).arg(1).arg(key).arg(epoch).arg(end_it.map(millis));
        command.get_packed_command()
    };
    let keys: Vec<String> = match servers.is_one_server() {
        true => vec![LIFE.to_owned()],
        false => servers.slots_of(&server.pool).into_iter().map(key_of_slot).collect(),
    };
    let mut lives = Vec::new();
    for keys in keys.chunks(MOST) {
        let packed: Vec<_> = keys.iter().map(pack).collect();
        for reply in server.pool.call_many(&packed) {
            lives.push(Life::read(&reply?).map_err(|error| Failure::Broken((&error).into()))?);
        }
    }
    Ok(lives)
}

/// Each reply tells the end of the grace, by a clock with delays. An end that is later by more than this belongs to another grace.
const LATER: Duration = Duration::from_secs(1);

/// The graces of a backend's servers.
#[derive(Debug, Default)]
pub(super) struct Graces {
    /// The latest grace of each server.
    known: Mutex<Vec<Grace>>,
    /// Whether a grace is not over.
    any: AtomicBool,
    /// In a cluster each hash slot has its own life: another slot's reply does not end a grace.
    pub(super) of_slots: bool,
}

#[derive(Debug)]
struct Grace {
    server: Address,
    until: Instant,
    is_over: bool,
}

impl Graces {
    pub(super) fn new(of_slots: bool) -> Graces {
        Graces { of_slots, ..Graces::default() }
    }

    /// Takes note of the grace in the reply of a durable script, and returns the rest of the reply.
    pub(super) fn heard(&self, server: &Address, reply: Value) -> Value {
        let (left, reply) = told(reply);
        match left {
            Some(left) => self.begin(server, left),
            None if self.any.load(Ordering::Relaxed) => self.end(server),
            None => {}
        }
        reply
    }

    /// The rest of the longest grace.
    pub(super) fn left(&self) -> Option<Duration> {
        let known = self.known.lock();
        let until = known.iter().filter(|grace| !grace.is_over).map(|grace| grace.until).max()?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    fn begin(&self, server: &Address, left: Duration) {
        let until = Instant::now() + left;
        let mut known = self.known.lock();
        match known.iter_mut().find(|grace| grace.server.is_same_server(server)) {
            Some(grace) if until <= grace.until + LATER => return,
            Some(grace) => (grace.until, grace.is_over) = (until, false),
            None => known.push(Grace { server: server.clone(), until, is_over: false }),
        }
        self.any.store(true, Ordering::Relaxed);
        drop(known);
        log::warn!(
            target: "fairlock::net",
            event = "grace", server:% = server, left:? = left;
            "Redis at {server} has a new past: it grants no locks for {left:.1?} more, and holders reclaim theirs"
        );
    }

    fn end(&self, server: &Address) {
        let mut known = self.known.lock();
        let of_it = |grace: &&mut Grace| !grace.is_over && grace.server.is_same_server(server);
        let Some(grace) = known.iter_mut().find(of_it) else { return };
        if self.of_slots && Instant::now() < grace.until {
            return;
        }
        grace.is_over = true;
        self.any.store(known.iter().any(|grace| !grace.is_over), Ordering::Relaxed);
        drop(known);
        log::info!(
            target: "fairlock::net",
            event = "grace over", server:% = server;
            "Redis at {server} grants locks again: its grace is over"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_backend::bulk;
    use crate::net::slot_of;
    use crate::script::scripts::all;

    #[test]
    fn a_durable_script_is_the_same_with_its_life_in_front() {
        for (script, ..) in all() {
            let body =
                script.text.source.strip_prefix("local grace_left, kept = nil, 0\n").expect(script.name);
            assert_eq!(wrapped(script).source, [&LIFE_OF_SCRIPT, body].concat(), "{}", script.name);
        }
    }

    #[test]
    fn the_life_of_a_slot_is_in_that_slot() {
        for slot in [0, 7629, 16_383] {
            assert_eq!(slot_of(&key_of_slot(slot)), Some(slot));
        }
    }

    /// A reply tells a grace in three items, and any other reply is the answer itself.
    #[test]
    fn a_reply_tells_a_grace_in_three_items() {
        let of = |word: &str, left| Value::Array(vec![bulk(word), left, Value::Int(7)]);
        let in_grace = told(of("grace", Value::Int(1500)));
        assert_eq!(in_grace, (Some(Duration::from_millis(1500)), Value::Int(7)));
        let others = [
            Value::Int(7),
            of("busy", Value::Int(1)),
            of("grace", Value::Int(-1)),
            of("grace", bulk("x")),
            Value::Array(vec![bulk("grace"), Value::Int(1)]),
        ];
        for reply in others {
            assert_eq!(told(reply.clone()), (None, reply));
        }
    }

    /// A life tells what is left of its grace, unless it has not begun.
    #[test]
    fn a_life_tells_what_is_left_of_its_grace() {
        let read =
            |items: Vec<Value>| Life::read(&Value::Array(items)).ok().map(|life| (life.left, life.grace));
        let left = Duration::from_millis(1500);
        assert_eq!(read(vec![Value::Int(1500), bulk("10602")]), Some((Some(left), Some("10602".to_owned()))));
        assert_eq!(read(vec![Value::Int(0), Value::Nil]), Some((Some(Duration::ZERO), None)));
        assert_eq!(read(vec![Value::Int(-1), Value::Nil]), Some((None, None)));
        assert_eq!(read(Vec::new()), Some((None, None)));
        assert_eq!(read(vec![bulk("x")]), None);
    }

    fn server(port: u16) -> Address {
        Address::parse(&format!("redis://127.0.0.1:{port}")).expect("an address")
    }

    fn in_grace(left: i64) -> Value {
        Value::Array(vec![Value::BulkString(b"grace".to_vec()), Value::Int(left), Value::Int(7)])
    }

    /// A reply is freed of its grace, which lasts until a reply without a grace.
    #[test]
    fn a_reply_is_freed_of_its_grace() {
        let (graces, here, there) = (Graces::default(), server(1), server(2));
        assert_eq!((graces.heard(&here, Value::Int(7)), graces.left()), (Value::Int(7), None));
        assert_eq!(graces.heard(&here, in_grace(60_000)), Value::Int(7));
        assert!(graces.left().is_some_and(|left| left > Duration::from_secs(50)));
        graces.heard(&there, Value::Int(7));
        assert!(graces.left().is_some(), "another server's");
        graces.heard(&here, Value::Int(7));
        assert_eq!(graces.left(), None);
        graces.heard(&here, in_grace(59_000));
        assert_eq!(graces.left(), None, "a reply that was late");
        graces.heard(&here, in_grace(90_000));
        assert!(graces.left().is_some_and(|left| left > Duration::from_secs(80)), "another grace");
    }

    #[test]
    fn in_a_cluster_the_reply_of_another_slot_ends_no_grace() {
        let (graces, here) = (Graces::new(true), server(1));
        graces.heard(&here, in_grace(60_000));
        graces.heard(&here, Value::Int(7));
        assert!(graces.left().is_some());
        let (graces, here) = (Graces::new(true), server(1));
        graces.heard(&here, in_grace(0));
        graces.heard(&here, Value::Int(7));
        assert!(graces.known.lock().iter().all(|grace| grace.is_over), "its time was over");
    }

    #[test]
    fn replies_are_looked_at_until_the_last_grace_is_over() {
        let (graces, here, there) = (Graces::default(), server(1), server(2));
        let looks = || graces.any.load(Ordering::Relaxed);
        graces.heard(&here, in_grace(60_000));
        graces.heard(&there, in_grace(60_000));
        graces.heard(&here, Value::Int(7));
        assert!(looks() && graces.left().is_some(), "the other server's");
        graces.heard(&there, Value::Int(7));
        assert!(!looks() && graces.left().is_none());
    }
}
