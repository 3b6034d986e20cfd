//! For which waiters the server knows whether their clients listen.
//!
//! A script passes over a waiter whose client is not subscribed. But after a restart with data a server has the queue at once,
//! and the subscribers come back one by one; and a network fault may cut off all subscribers. So for ten seconds after such a
//! fault a missing subscription counts only against waiters that have come since, because a client subscribes before it asks.
//! Earlier waiters count until their places end.
//!
//! A client notices the fault by a lost connection, and once more when a connection opens in its place: only then it knows the server's
//! time, and clients that have come meanwhile may have come before their own subscriptions broke. A new program had no connection, and
//! looks how long the server has been up.
//!
//! What a call says of this is packed before the connection that carries the call is known. So faults have numbers: a call that was
//! packed before the last fault of its connection is packed anew (see `Pool::lead`).

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
    /// How many faults were noticed.
    count: AtomicU64,
    /// When a connection was last lost, or opened in place of one that was, in microseconds.
    lost: AtomicU64,
    /// When the latest answered command was sent, in microseconds.
    heard: AtomicU64,
}

impl KnownListeners {
    pub(super) fn new() -> KnownListeners {
        let [fault, until, count, lost, heard] = [const { AtomicU64::new(0) }; 5];
        KnownListeners { made: Instant::now(), fault, until, count, lost, heard }
    }

    /// What a connection asks when it opens, beside the time.
    pub(super) fn question() -> Cmd {
        cmd("INFO").arg("server").to_owned()
    }

    /// A connection has opened, perhaps in place of one that was lost. The server has said what time it is (in microseconds since
    /// 1970), and how long it has been up, if the user may know.
    pub(super) fn connected(&self, is_again: bool, time: Option<u64>, info: Option<&Value>) {
        let uptime = info.and_then(|info| {
            let seconds = field(text(info).ok()?, "uptime_in_seconds")?.parse().ok()?;
            Some(Duration::from_secs(seconds))
        });
        // A later connection tells nothing new: without a loss the server has been up since the first.
        let is_first = self.heard.load(Ordering::Relaxed) == 0;
        self.hears(Instant::now());
        if is_again {
            self.lost(time);
        } else if let Some(left) =
            uptime.filter(|_| is_first).and_then(|uptime| ALL_ARE_BACK.checked_sub(uptime))
        {
            // The end of the second in which the server began, so that no earlier waiter is passed over; or now, if that is earlier.
            let time = time.unwrap_or(u64::MAX);
            let seconds = (time / SECOND).saturating_sub((ALL_ARE_BACK - left).as_secs());
            self.faulted(seconds.saturating_add(1).saturating_mul(SECOND).min(time), left);
        }
    }

    /// A connection was lost by this time of the server.
    pub(super) fn lost(&self, time: Option<u64>) {
        self.lost.store(self.at(Instant::now()), Ordering::Relaxed);
        self.faulted(time.unwrap_or(u64::MAX), ALL_ARE_BACK);
    }

    fn faulted(&self, at: u64, lasts: Duration) {
        self.fault.fetch_max(at, Ordering::Relaxed);
        let until =
            self.at(Instant::now()).saturating_add(u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX));
        self.until.fetch_max(until, Ordering::Relaxed);
        // Last: what is packed from here on says so.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The number of the last fault. Read before what is packed by it.
    pub(super) fn last_fault(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether a connection was lost after this time, or opened in place of one that was.
    pub(super) fn has_lost_since(&self, then: Instant) -> bool {
        self.lost.load(Ordering::Relaxed) > self.at(then)
    }

    /// A command that was sent then was answered.
    pub(super) fn hears(&self, sent: Instant) {
        self.heard.store(self.at(sent).max(1), Ordering::Relaxed); // zero: never
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
        assert_eq!(after(&[(false, 100, Some(3))]), Listeners::KnownSince(98 * SECOND), "in its second");
        assert_eq!(
            after(&[(false, 100, Some(0)), (false, 109, Some(9))]),
            Listeners::KnownSince(100 * SECOND + 7)
        );
        let since = Listeners::KnownSince(130 * SECOND + 7);
        assert_eq!(after(&[(false, 100, Some(60)), (true, 130, Some(90))]), since);
        assert_eq!(after(&[(true, 130, Some(1)), (false, 130, Some(1))]), since);
        let known = KnownListeners::new();
        known.faulted(5, Duration::ZERO);
        assert_eq!(known.are(), Listeners::Known, "it is over");
    }

    #[test]
    fn a_lost_connection_is_a_fault_at_once() {
        let before = Instant::now();
        let known = KnownListeners { made: before - 2 * ALL_ARE_BACK, ..KnownListeners::new() };
        assert!(!known.has_lost_since(before - ALL_ARE_BACK) && known.last_fault() == 0);
        known.lost(Some(7));
        assert_eq!((known.are(), known.last_fault()), (Listeners::KnownSince(7), 1));
        assert!(
            known.has_lost_since(before - Duration::from_millis(1)) && !known.has_lost_since(Instant::now())
        );
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
