//! What a client knows of a server's clock, and with it the end of an attempt.
//!
//! A network can deliver a command long after its sender has given it up. So each attempt that may begin something carries its
//! end by the server's clock, and the server refuses the attempt later. The client reads the server's clock when it connects, and
//! with each ping. A refusal tells the clock too: if the clock was stepped forward, the client loses one trip.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::Value;

use crate::net::connection::Failure;
use crate::net::value::micros;

/// How much longer than a response time-out an attempt may begin what it asks for. A server that answers later than its
/// clients wait, but within this, still makes progress: a waiter finds its grant by a message.
const MARGIN: Duration = Duration::from_secs(5);
/// How far a reading may have drifted.
const DRIFT: Duration = Duration::from_secs(1);
/// The oldest reading of a connection that is in constant use: by then it has drifted by less than [`DRIFT`].
const OLDEST: Duration = Duration::from_secs(600);

/// The clock of one server.
#[derive(Debug)]
pub(super) struct ServerClock {
    /// Where the two numbers begin.
    made: Instant,
    /// What the server's clock said at the last reading, in microseconds since 1970; 0 if not known.
    then: AtomicU64,
    /// When the clock was last read, in microseconds.
    read: AtomicU64,
}

/// For how long after it was sent an attempt may begin what it asks for, by the server's clock.
pub(crate) fn attempt_length(response: Duration) -> Duration {
    response + MARGIN
}

/// The same time as the client sees it.
pub(crate) fn attempt_ttl(response: Duration) -> Duration {
    attempt_length(response) + DRIFT
}

impl ServerClock {
    pub(super) fn new() -> ServerClock {
        ServerClock { made: Instant::now(), then: AtomicU64::new(0), read: AtomicU64::new(0) }
    }

    fn elapsed(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.made).as_micros()).unwrap_or(u64::MAX)
    }

    /// The reply to TIME has just arrived. Any other reply tells nothing.
    ///
    /// The clock is behind the server's own by the reply's way, so an attempt ends a little earlier and never later.
    pub(super) fn heard(&self, reply: &Value) {
        if let Ok(now) = micros(reply) {
            self.is(now);
        }
    }

    fn is(&self, now: u64) {
        let elapsed = self.elapsed(Instant::now());
        // Of two threads that have read the clock, each is right.
        self.then.store(now.saturating_sub(elapsed), Ordering::Relaxed);
        self.read.store(elapsed, Ordering::Relaxed);
    }

    /// What the server's clock says now, in microseconds since 1970, if known.
    pub(super) fn time(&self) -> Option<u64> {
        let then = self.then.load(Ordering::Relaxed);
        (then > 0).then(|| then + self.elapsed(Instant::now()))
    }

    pub(super) fn is_known(&self) -> bool {
        self.then.load(Ordering::Relaxed) > 0
    }

    /// Whether a connection in constant use should read the clock.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        let age = self.elapsed(now).saturating_sub(self.read.load(Ordering::Relaxed));
        Duration::from_micros(age) > OLDEST
    }

    /// The end of an attempt that is sent now, in microseconds since 1970. While the clock is unknown: 0, so that the
    /// server refuses the attempt and tells its clock.
    pub(super) fn attempt_end(&self, response: Duration) -> u64 {
        match self.then.load(Ordering::Relaxed) {
            0 => 0,
            then => {
                let ttl = u64::try_from(attempt_length(response).as_micros()).unwrap_or(u64::MAX);
                then.saturating_add(self.elapsed(Instant::now())).saturating_add(ttl)
            }
        }
    }

    /// Whether the server refused an attempt because its end had come. Then nothing was carried out, and the clock is known.
    pub(super) fn refused_late(&self, failure: &Failure) -> bool {
        let Failure::Refused { code, message, .. } = failure else { return false };
        if code != LATE {
            return false;
        }
        self.is(message.parse().unwrap_or(0));
        true
    }
}

/// The code of such a refusal, see `scripts/lib/clock.lua`.
const LATE: &str = "LATE";

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: Duration = Duration::from_secs(1);

    fn time(seconds: &str, micros: &str) -> Value {
        Value::Array([seconds, micros].map(|text| Value::BulkString(text.as_bytes().to_vec())).to_vec())
    }

    /// An attempt ends a response time-out and a margin after now, by the server's clock.
    #[test]
    fn an_attempt_ends_by_the_servers_clock() {
        let clock = ServerClock::new();
        assert!(!clock.is_known());
        assert_eq!(clock.attempt_end(RESPONSE), 0, "it is over until the clock is known");
        clock.heard(&time("1000", "7"));
        assert!(clock.is_known() && !clock.is_old(Instant::now()));
        let left = clock.attempt_end(RESPONSE) - 1_000_000_007;
        assert!((6_000_000..7_000_000).contains(&left), "{left}");
        assert!(attempt_ttl(RESPONSE) > Duration::from_secs(6), "its client counts longer");
    }

    #[test]
    fn a_reading_goes_on_by_the_clients_clock_and_gets_old() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let clock = ServerClock { made: now - 20 * second, ..ServerClock::new() };
        assert_eq!(clock.time(), None);
        clock.heard(&time("1000", "7"));
        let says = clock.time().expect("a reading");
        assert!((1_000_000_007..1_001_000_000).contains(&says), "{says}");
        assert!(!clock.is_old(now + OLDEST - second) && clock.is_old(now + OLDEST + second));
    }

    #[test]
    fn a_refusal_tells_the_clock_and_other_replies_do_not() {
        let clock = ServerClock::new();
        for reply in [Value::Okay, Value::Nil, time("x", "1"), Value::Array(vec![])] {
            clock.heard(&reply);
        }
        assert!(!clock.refused_late(&Failure::refused("READONLY", "5")) && !clock.is_known());
        assert!(clock.refused_late(&Failure::refused("LATE", "2000000000")));
        let end = clock.attempt_end(RESPONSE);
        assert!((2_006_000_000..2_007_000_000).contains(&end), "{end}");
    }
}
