//! The lives of the servers: their keys, the text in front of each script that looks at the life, what a server tells of its life and its
//! grace, and what the key of a life tells a client that is not durable. The log has a line when a grace is seen, and when it is over.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, LineLimit};
use parking_lot::Mutex;
use redis::{Cmd, Value, cmd};

use crate::net::{Address, Failure, Greeting, Refusal, Route, Servers, invalid, tag_of_slot};
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

/// How often a refused client looks again, while its callers ask for locks.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Limits the log lines about durable clients that were seen.
static SEEN: LineLimit = LineLimit::new();

/// Whether other clients of the servers are durable, as the connections of a backend have seen: beside them a client without `durable` must
/// not use locks with a queue. Each connection looks with its greeting, so a look costs the use of a lock nothing.
///
/// | what is known | moves to | by |
/// | --- | --- | --- |
/// | no life was seen | seen | a look that finds the life |
/// | seen | gone | a look that finds no life |
/// | gone | seen | a look that finds the life |
/// | gone | no life was seen | a look that finds no life, one grace later |
///
/// A flush deletes the key when the key matters most: the server has forgotten a durable holder that still lives. But the next
/// renewal of this holder brings the key back, well within a grace, which is longer than a lease.
#[derive(Debug)]
pub(super) struct DurablePeers {
    life: String,
    /// Whether `seen` is some, to be read without its mutex by each ask.
    is_refused: AtomicBool,
    seen: Mutex<Option<Seen>>,
    /// The user may not look.
    may_not_look: Refusal,
}

#[derive(Debug)]
struct Seen {
    /// The grace of the durable clients, in milliseconds.
    grace: String,
    /// When a look first found no life.
    gone: Option<Instant>,
    /// When a caller last looked.
    looked: Option<Instant>,
}

impl Seen {
    /// Whether the life is gone for good.
    fn is_over(&self, now: Instant) -> bool {
        let grace = self.grace.parse().map_or(Duration::MAX, Duration::from_millis);
        self.gone.is_some_and(|gone| now.saturating_duration_since(gone) >= grace)
    }
}

impl DurablePeers {
    pub(super) fn looking(of_slots: bool) -> DurablePeers {
        let life = life(of_slots);
        let (is_refused, seen, may_not_look) = Default::default();
        DurablePeers { life, is_refused, seen, may_not_look }
    }

    pub(super) fn heard(&self, reply: &Value, now: Instant) {
        let mut seen = self.seen.lock();
        match (text(reply), &mut *seen) {
            (Ok(grace), Some(known)) => (known.grace, known.gone) = (grace.to_owned(), None),
            (Ok(grace), None) => {
                *seen = Some(Seen { grace: grace.to_owned(), gone: None, looked: None });
                self.is_refused.store(true, Ordering::Release);
                drop(seen);
                if SEEN.count(1, now).is_some() {
                    log::warn!(
                        target: "fairlock::net",
                        event = "durable clients beside", grace_ms = grace;
                        "this client is not `durable` but other clients of these servers are: fair locks, read-write locks and \
                         semaphores are refused until their key `{}` is gone", self.life
                    );
                }
            }
            (Err(_), Some(known)) if *reply == Value::Nil => {
                known.gone.get_or_insert(now);
                if known.is_over(now) {
                    *seen = None;
                    self.is_refused.store(false, Ordering::Release);
                }
            }
            (Err(_), _) => {}
        }
    }

    /// Looks again, if the client is refused and nobody has looked for a second.
    ///
    /// # Errors
    /// `InvalidConfig` while durable clients count as seen.
    pub(super) fn check(&self, servers: Option<&Servers>) -> Result<(), BackendError> {
        if !self.is_refused.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(servers) = servers.filter(|_| self.may_look_again(Instant::now())) {
            let look = question(&self.life).get_packed_command();
            let answer = servers.call(&self.life, |route| route.call(&look));
            self.answered(answer.map_err(|failed| failed.failure));
        }
        let seen = self.seen.lock();
        let Some(Seen { grace, gone, .. }) = &*seen else { return Ok(()) };
        let gone = gone.map_or_else(String::new, |gone| {
            let ago = gone.elapsed().as_millis();
            format!(" (`{}` has been gone for {ago} ms, and counts as gone after {grace} ms)", self.life)
        });
        Err(invalid(format!(
            "this client is not `durable` but other clients of the server are, with a grace of {grace} ms: it could be granted a lock that \
             is still held; configure `RedisBuilder::durable` (`fairlock`: `--durable`) with the same values, or, if none of them is \
             left, delete the key `{}`{gone}",
            self.life
        )))
    }

    fn may_look_again(&self, now: Instant) -> bool {
        let mut seen = self.seen.lock();
        let Some(seen) = seen.as_mut().filter(|_| !self.may_not_look.is_believed()) else {
            return false;
        };
        let is_due = seen.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOKS_EVERY);
        if is_due {
            seen.looked = Some(now);
        }
        is_due
    }
}

impl Greeting for DurablePeers {
    fn question(&self) -> Option<Cmd> {
        (!self.may_not_look.is_believed()).then(|| question(&self.life))
    }

    /// A refusal tells nothing: the user may have no right to the key, and in a cluster one node keeps it.
    fn answered(&self, reply: Result<Value, Failure>) {
        match reply {
            Ok(reply) => self.heard(&reply, Instant::now()),
            Err(failure) if failure.code() == Some("NOPERM") => self.may_not_look.heard(),
            Err(_) => {}
        }
    }
}

/// The life that all clients look at. In a cluster, where each hash slot has a life, the life of the first slot: durable clients begin
/// that life too.
pub(super) fn life(of_slots: bool) -> String {
    if of_slots { key_of_slot(0) } else { LIFE.to_owned() }
}

/// Reads the field that each life has.
pub(super) fn question(life: &str) -> Cmd {
    cmd("HGET").arg(life).arg("grace").to_owned()
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::BackendErrorKind;

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

    fn grace() -> Value {
        Value::BulkString(b"10602".to_vec())
    }

    fn asked(peers: &DurablePeers) -> Option<Vec<u8>> {
        peers.question().map(|command| command.get_packed_command())
    }

    #[test]
    fn a_client_that_has_seen_a_durable_one_asks_for_no_lock() {
        let peers = DurablePeers::looking(false);
        peers.answered(Ok(Value::Nil));
        assert_eq!(asked(&peers), Some(cmd("HGET").arg("fairlock_life").arg("grace").get_packed_command()));
        assert!(peers.check(None).is_ok());
        peers.answered(Ok(grace()));
        let error = peers.check(None).unwrap_err();
        assert!(error.kind() == BackendErrorKind::InvalidConfig && error.to_string().contains("10602 ms"));
    }

    /// A holder that the server has forgotten brings the key back within that time.
    #[test]
    fn a_life_that_has_been_gone_for_a_grace_is_over() {
        let (peers, start) = (DurablePeers::looking(false), Instant::now());
        let at = |millis, reply: &Value| peers.heard(reply, start + Duration::from_millis(millis));
        let is_refused = || peers.check(None).is_err();
        at(0, &grace());
        at(5_000, &Value::Nil);
        at(15_000, &Value::Nil);
        assert!(is_refused(), "for 10 s");
        at(15_100, &grace());
        at(16_000, &Value::Nil);
        at(26_000, &Value::Int(7)); // tells nothing
        assert!(is_refused(), "it was back");
        at(26_602, &Value::Nil);
        assert!(!is_refused());
        at(27_000, &grace());
        assert!(is_refused(), "seen anew");
    }

    #[test]
    fn a_caller_that_is_refused_looks_once_a_second() {
        let (peers, now) = (DurablePeers::looking(false), Instant::now());
        assert!(!peers.may_look_again(now), "nothing was seen");
        peers.answered(Ok(grace()));
        let looks = |millis| peers.may_look_again(now + Duration::from_millis(millis));
        assert_eq!([looks(0), looks(999), looks(1000), looks(1500)], [true, false, true, false]);
    }

    #[test]
    fn a_look_without_the_right_to_it_is_repeated_each_minute() {
        let peers = DurablePeers::looking(true);
        let first = cmd("HGET").arg(key_of_slot(0)).arg("grace").get_packed_command();
        peers.answered(Err(Failure::refused("MOVED", "0 127.0.0.1:2")));
        assert_eq!(asked(&peers), Some(first));
        peers.answered(Err(Failure::refused("NOPERM", "no right to it")));
        assert_eq!(asked(&peers), None);
        peers.heard(&grace(), Instant::now());
        assert!(!peers.may_look_again(Instant::now()));
        peers.may_not_look.grow_old();
        assert!(asked(&peers).is_some() && peers.may_look_again(Instant::now()));
    }
}
