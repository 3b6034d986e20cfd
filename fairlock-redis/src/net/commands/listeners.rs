//! For which waiters the server knows whether their clients listen.
//!
//! A script passes over a waiter whose client is not subscribed. But after a restart with data a server has the queue at once,
//! and the subscribers come back one by one; and a network fault may cut off all subscribers. So for ten seconds after such a
//! fault a missing subscription counts only against waiters that have come since, because a client subscribes before it asks.
//! Earlier waiters count until their places end.
//!
//! A client notices the fault by a lost connection. A new program had no connection, and looks how long the server has been up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

use super::command_connection::CommandConnection;
use crate::net::value::{field, text};

/// After this time the subscriptions of all clients count as back.
pub(crate) const ALL_ARE_BACK: Duration = Duration::from_secs(10);

/// For which waiters it is known whether their clients listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listeners {
    /// For all waiters.
    Known,
    /// For waiters with this ticket or a greater one.
    KnownSince(u64),
    /// For no waiter.
    Unknown,
}

/// What a client knows of the last fault.
#[derive(Debug)]
pub(super) struct KnownListeners {
    /// Where the other times begin, but the first.
    made: Instant,
    /// The server's time of the last fault, in microseconds since 1970.
    fault: AtomicU64,
    /// Until when that fault counts, in microseconds.
    until: AtomicU64,
    /// When the latest answered command was sent, in microseconds.
    heard: AtomicU64,
}

impl KnownListeners {
    pub(super) fn new() -> KnownListeners {
        let [fault, until, heard] = [const { AtomicU64::new(0) }; 3];
        KnownListeners { made: Instant::now(), fault, until, heard }
    }

    /// What a connection asks when it opens, beside the time.
    pub(super) fn question() -> Cmd {
        cmd("INFO").arg("server").to_owned()
    }

    /// A connection has opened, perhaps in place of one that was lost. The server has said what time it is (in microseconds since
    /// 1970), and how long it has been up, if the user may know.
    pub(super) fn connected(&self, is_again: bool, time: Option<u64>, info: Option<&Value>) {
        let time = time.unwrap_or(u64::MAX);
        let uptime = info.and_then(|info| {
            let seconds = field(text(info).ok()?, "uptime_in_seconds")?.parse().ok()?;
            Some(Duration::from_secs(seconds))
        });
        self.hears(Instant::now());
        if is_again {
            self.faults(time, ALL_ARE_BACK);
        } else if let Some(left) = uptime.and_then(|uptime| ALL_ARE_BACK.checked_sub(uptime)) {
            // The end of the second in which the server started: no earlier waiter is passed over.
            let seconds = (time / SECOND + 1).saturating_sub((ALL_ARE_BACK - left).as_secs());
            self.faults(seconds.saturating_mul(SECOND), left);
        }
    }

    fn faults(&self, at: u64, lasts: Duration) {
        self.fault.fetch_max(at, Ordering::Relaxed);
        let until =
            self.at(Instant::now()).saturating_add(u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX));
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// A command that was sent then was answered.
    pub(super) fn hears(&self, sent: Instant) {
        self.heard.store(self.at(sent), Ordering::Relaxed);
    }

    /// Whether the loss of a connection would have been noticed.
    pub(super) fn has_heard_lately(&self) -> bool {
        let since = self.at(Instant::now()).saturating_sub(self.heard.load(Ordering::Relaxed));
        Duration::from_micros(since) < CommandConnection::FRESH && self.heard.load(Ordering::Relaxed) > 0
    }

    pub(super) fn are(&self) -> Listeners {
        if self.until.load(Ordering::Relaxed) <= self.at(Instant::now()) {
            return Listeners::Known;
        }
        Listeners::KnownSince(self.fault.load(Ordering::Relaxed))
    }

    fn at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.made).as_micros()).unwrap_or(u64::MAX)
    }
}

/// In microseconds.
const SECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault counts for ten seconds, and not for waiters that came later.
    #[test]
    fn a_fault_counts_for_ten_seconds() {
        let after = |connections: &[(bool, u64, Option<u64>)]| {
            let known = KnownListeners::new();
            for (is_again, time, uptime) in connections {
                let info = uptime.map(|uptime| format!("# Server\r\nuptime_in_seconds:{uptime}\r\n"));
                let info = info.map(|info| Value::BulkString(info.into_bytes()));
                known.connected(*is_again, Some(time * SECOND + 7), info.as_ref());
            }
            known.are()
        };
        assert_eq!(after(&[]), Listeners::Known);
        assert_eq!(after(&[(false, 100, Some(60))]), Listeners::Known);
        assert_eq!(after(&[(false, 100, None)]), Listeners::Known, "the user may not know");
        assert_eq!(after(&[(false, 100, Some(3))]), Listeners::KnownSince(98 * SECOND));
        let since = Listeners::KnownSince(130 * SECOND + 7);
        assert_eq!(after(&[(false, 100, Some(60)), (true, 130, Some(90))]), since);
        assert_eq!(after(&[(true, 130, Some(1)), (false, 130, Some(1))]), since);
        let known = KnownListeners::new();
        known.faults(5, Duration::ZERO);
        assert_eq!(known.are(), Listeners::Known, "it is over");
    }

    #[test]
    fn who_has_heard_lately_would_have_noticed_a_loss() {
        assert!(!KnownListeners::new().has_heard_lately(), "of nobody");
        let long_ago = Instant::now() - 2 * ALL_ARE_BACK;
        let known = KnownListeners { made: long_ago, ..KnownListeners::new() };
        known.hears(Instant::now());
        assert!(known.has_heard_lately());
        known.hears(Instant::now() - CommandConnection::FRESH);
        assert!(!known.has_heard_lately());
    }
}
