//! Which servers are in a grace, as far as their replies have told. The log has a line when a grace is seen, and when it is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::Value;

use super::lives::told;
use crate::net::Address;

/// Each reply tells the end of the grace, by a clock with delays. An end that is later by more than this belongs to another grace.
const LATER: Duration = Duration::from_secs(1);

/// The graces of a backend's servers.
#[derive(Debug, Default)]
pub(crate) struct Graces {
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
    pub(crate) fn left(&self) -> Option<Duration> {
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
