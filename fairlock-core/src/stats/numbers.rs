//! The numbers that a program reads, and their text.

use std::fmt;
use std::time::Duration;

use crate::claim::WaitingRequest;

/// What has happened to the requests of a client since it was made, or to those for one lock. Its `Display` is a block of
/// lines to read. With feature `serde` it can be serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Grants at the first attempt: the lock was free.
    pub granted_at_once: u64,
    /// Grants by a wake-up.
    pub granted_by_wake_up: u64,
    /// Grants by asking again without a wake-up: its message was lost, or the holder died or lost its hold.
    pub granted_by_polling: u64,
    /// How long the granted requests waited.
    pub waits: Times,
    /// The calls that ended without the lock.
    pub not_granted: NotGrantedByKind,
    /// How long those calls waited, without attempts that do not wait.
    pub failed_waits: Times,
    /// How long the holds lasted that are over, from the grant to the outermost unlock or the loss.
    pub holds: Times,
    /// Renewals of holds that the server answered. Those of places are not counted.
    pub renewals: u64,
    /// Renewals of holds that took more than one attempt, or were sent when more than half of their time was over.
    pub late_renewals: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Places that the server had dropped and did not restore: these waiters went to the tail.
    pub places_lost: u64,
    /// Wake-ups that named no waiting request of this client. 0 for one lock.
    pub wake_ups_ignored: u64,
    /// Gaps in the wake-ups, one for each reconnect of the connection that carries them. 0 for one lock.
    pub gaps: u64,
    /// Reconnects to the same server after a connection was lost: of the connections for commands, for all clients of this
    /// backend; and of this client's connection for wake-ups (`gaps`). 0 for a single lock.
    pub reconnects: u64,
    /// How many holds there are now.
    pub holding: u64,
    /// For how long the server has not answered the watchdog, or a server of several. None if it answers, and for one lock.
    pub outage: Option<Duration>,
    /// The requests that wait now, and where in the queue, as in [`Client::waiting`](crate::Client::waiting).
    pub waiting: Vec<WaitingRequest>,
}

/// The calls for locks of each kind that ended without the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotGrantedByKind {
    /// Fair locks.
    pub fair: NotGranted,
    /// Plain locks.
    pub plain: NotGranted,
    /// Read-write locks, for reading and for writing.
    pub read_write: NotGranted,
    /// Semaphores.
    pub semaphore: NotGranted,
}

/// How calls ended without the lock. A request or a task's wait that is dropped is not counted, nor is a call that the end of the
/// client ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NotGranted {
    /// An attempt that does not wait found the lock taken.
    pub busy: u64,
    /// The time of the wait was over.
    pub timed_out: u64,
    /// The wait was cancelled.
    pub cancelled: u64,
    /// The server gave no usable answer in time.
    pub unavailable: u64,
    /// The server refused the request: a missing right, or a name that is in use for something else.
    pub refused: u64,
}

/// How long waits or holds lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// The median of the latest 1,024.
    pub median: Duration,
    /// The 95th percentile of the latest 1,024.
    pub p95: Duration,
    /// The 99th percentile of the latest 1,024.
    pub p99: Duration,
    /// The longest of all.
    pub longest: Duration,
}

impl NotGrantedByKind {
    /// The numbers of all kinds together.
    pub fn total(&self) -> NotGranted {
        let NotGrantedByKind { fair, plain, read_write, semaphore } = self;
        let add = |one: NotGranted, other: &NotGranted| NotGranted {
            busy: one.busy + other.busy,
            timed_out: one.timed_out + other.timed_out,
            cancelled: one.cancelled + other.cancelled,
            unavailable: one.unavailable + other.unavailable,
            refused: one.refused + other.refused,
        };
        [fair, plain, read_write, semaphore].into_iter().fold(NotGranted::default(), add)
    }
}

impl NotGranted {
    /// All of them.
    pub fn total(&self) -> u64 {
        let NotGranted { busy, timed_out, cancelled, unavailable, refused } = self;
        busy + timed_out + cancelled + unavailable + refused
    }
}

/// How many waiting requests `Display` lists.
const LISTED: usize = 10;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { granted_at_once, granted_by_wake_up, granted_by_polling, waits, holds, waiting, .. } =
            self;
        let granted = granted_at_once + granted_by_wake_up + granted_by_polling;
        writeln!(
            f,
            "granted   {granted}: {granted_at_once} at once, {granted_by_wake_up} by a wake-up, \
             {granted_by_polling} by polling"
        )?;
        writeln!(f, "waits     {waits}")?;
        let failed = self.not_granted.total();
        let NotGranted { busy, timed_out, cancelled, unavailable, refused } = failed;
        writeln!(
            f,
            "failed    {}: {busy} busy, {timed_out} timed out, {cancelled} cancelled, \
             {unavailable} unavailable, {refused} refused",
            failed.total()
        )?;
        writeln!(f, "  waits   {}", self.failed_waits)?;
        writeln!(f, "holds     {holds}")?;
        writeln!(f, "renewals  {}, {} of them late", self.renewals, self.late_renewals)?;
        writeln!(f, "lost      holds: {}, places: {}", self.lost, self.places_lost)?;
        writeln!(
            f,
            "wake-ups  ignored: {}, gaps: {}, reconnects: {}",
            self.wake_ups_ignored, self.gaps, self.reconnects
        )?;
        writeln!(f, "holding   {}", self.holding)?;
        if let Some(outage) = self.outage {
            writeln!(f, "outage    for {outage:.1?}")?;
        }
        write!(f, "waiting   {}", waiting.len())?;
        for WaitingRequest { lock, owner, rank, waiting_for, .. } in waiting.iter().take(LISTED) {
            write!(f, "\n          lock {lock} for {waiting_for:.1?}")?;
            match rank {
                Some(0) => f.write_str(", next")?,
                Some(rank) => write!(f, ", behind {rank}")?,
                None => {}
            }
            write!(f, " ({owner})")?;
        }
        match waiting.len().checked_sub(LISTED) {
            Some(more) if more > 0 => write!(f, "\n          and {more} more"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { count, median, p95, p99, longest } = self;
        if *count == 0 {
            return f.write_str("none");
        }
        write!(
            f,
            "{count}: median {median:.1?}, 95 % within {p95:.1?}, 99 % within {p99:.1?}, longest {longest:.1?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LockKind, LockName, OwnerId};

    #[test]
    fn each_count_has_its_place_in_the_text() {
        let (granted_at_once, granted_by_wake_up, granted_by_polling) = (1, 2, 4);
        let (renewals, late_renewals, lost, places_lost) = (8, 3, 5, 6);
        let (wake_ups_ignored, gaps, reconnects) = (9, 10, 11);
        let times = |count, ms| {
            let [median, p95, p99, longest] = [1, 2, 3, 4].map(|n| n * Duration::from_millis(ms));
            Times { count, median, p95, p99, longest }
        };
        let (waits, holds, waiting) = (times(7, 10), times(6, 100), Vec::new());
        let (failed_waits, holding, outage) = (times(12, 20), 13, Some(Duration::from_secs(14)));
        let fair = NotGranted { busy: 1, timed_out: 2, cancelled: 3, unavailable: 4, refused: 5 };
        let not_granted = NotGrantedByKind { fair, semaphore: fair, ..NotGrantedByKind::default() };
        let stats = Stats {
            not_granted,
            failed_waits,
            holding,
            outage,
            granted_at_once,
            granted_by_wake_up,
            granted_by_polling,
            waits,
            holds,
            renewals,
            late_renewals,
            lost,
            places_lost,
            wake_ups_ignored,
            gaps,
            reconnects,
            waiting,
        };
        assert_eq!(
            stats.to_string(),
            "granted   7: 1 at once, 2 by a wake-up, 4 by polling\n\
             waits     7: median 10.0ms, 95 % within 20.0ms, 99 % within 30.0ms, longest 40.0ms\n\
             failed    30: 2 busy, 4 timed out, 6 cancelled, 8 unavailable, 10 refused\n\
             \x20 waits   12: median 20.0ms, 95 % within 40.0ms, 99 % within 60.0ms, longest 80.0ms\n\
             holds     6: median 100.0ms, 95 % within 200.0ms, 99 % within 300.0ms, longest 400.0ms\n\
             renewals  8, 3 of them late\n\
             lost      holds: 5, places: 6\n\
             wake-ups  ignored: 9, gaps: 10, reconnects: 11\n\
             holding   13\n\
             outage    for 14.0s\n\
             waiting   0"
        );
    }

    /// The text lists the first ten requests that wait, and how many more there are.
    #[test]
    fn the_text_lists_ten_that_wait_and_counts_the_others() {
        let owner = OwnerId::new("c:1");
        let waits = |n: u64| WaitingRequest {
            lock: LockName::new(&format!("n:{n}")).unwrap(),
            kind: LockKind::Fair,
            owner: owner.clone(),
            units: 1,
            rank: [Some(0), Some(2), None].get(n as usize).copied().flatten(),
            waiting_for: Duration::from_millis(1500),
        };
        let listed =
            |count| Stats { waiting: (0..count).map(waits).collect(), ..Stats::default() }.to_string();
        let text = listed(10);
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("waiting")).collect();
        assert_eq!((lines.len(), lines[0]), (11, "waiting   10"));
        let first = [1, 2, 3].map(|at: usize| lines[at].trim_start());
        let all = ["`n:0` for 1.5s, next", "`n:1` for 1.5s, behind 2", "`n:2` for 1.5s"];
        assert_eq!(first, all.map(|line| format!("lock {line} (c:1)")));
        let more = listed(13);
        let after = more.lines().skip_while(|line| !line.contains("`n:9`")).skip(1);
        assert_eq!(after.collect::<Vec<_>>(), ["          and 3 more"]);
    }
}
