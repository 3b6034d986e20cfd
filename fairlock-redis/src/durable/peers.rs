//! Whether other clients of the servers are durable: beside them a client without `durable` must not use locks with a queue.
//!
//! | what is known | moves to | by |
//! | --- | --- | --- |
//! | no life was seen | seen | a look that finds the life |
//! | seen | gone | a look that finds no life |
//! | gone | seen | a look that finds the life |
//! | gone | no life was seen | a look that finds no life, one grace later |
//!
//! A flush deletes the key when the key matters most: the server has forgotten a durable holder that still lives. But the next
//! renewal of this holder brings the key back, well within a grace, which is longer than a lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlock_core::backend::{BackendError, LineLimit};
use parking_lot::Mutex;
use redis::{Cmd, Value, cmd};

use super::lives::{LIFE, key_of_slot};
use crate::net::{Failure, Greeting, Refusal, Servers, invalid};
use crate::script::reply::text;

/// How often a refused client looks again, while its callers ask for locks.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Limits the log lines about durable clients that were seen.
static SEEN: LineLimit = LineLimit::new();

/// What the connections of a backend have seen of durable clients.
///
/// Each connection looks with its greeting, so a look costs the use of a lock nothing.
#[derive(Debug)]
pub(crate) struct DurablePeers {
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
            let look = self.look().get_packed_command();
            let answer = servers.call(&self.life, |route| route.call(&look));
            self.take(answer.map_err(|failed| failed.failure));
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

    fn look(&self) -> Cmd {
        question(&self.life)
    }

    /// A refusal tells nothing: the user may have no right to the key, and in a cluster one node keeps it.
    fn take(&self, reply: Result<Value, Failure>) {
        match reply {
            Ok(reply) => self.heard(&reply, Instant::now()),
            Err(failure) if failure.code() == Some("NOPERM") => self.may_not_look.heard(),
            Err(_) => {}
        }
    }
}

impl Greeting for DurablePeers {
    fn question(&self) -> Option<Cmd> {
        (!self.may_not_look.is_believed()).then(|| self.look())
    }

    fn answered(&self, reply: Result<Value, Failure>) {
        self.take(reply);
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
    use super::*;
    use fairlock_core::backend::BackendErrorKind;

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
