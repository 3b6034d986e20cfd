//! Counts of what has happened to a client's requests.

mod crossing;
mod meters;
mod not_granted;
mod tally;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(crate) use not_granted::Outcome;
pub use not_granted::{NotGranted, NotGrantedByKind};
pub(crate) use tally::count;

use crossing::Crossing;
use meters::ClientMeters;
use tally::Tally;

use crate::backend::{LockId, RequestId};
use crate::claim::{GrantedBy, Punctuality};
use crate::error::LostCause;
use crate::ids::LockName;
use crate::snapshot::WaitingRequest;

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
    /// The requests that wait now, and where in the line, as in [`Client::waiting`](crate::Client::waiting).
    pub waiting: Vec<WaitingRequest>,
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

/// What a client counts, as a whole and lock by lock.
pub(crate) struct Counters {
    all: Tally,
    of_client: ClientMeters,
    of_locks: Mutex<HashMap<LockName, Arc<Tally>>>,
    /// How many locks are counted one by one.
    most_locks: usize,
    pub(crate) wake_ups_ignored: AtomicU64,
    pub(crate) gaps: AtomicU64,
    crossing: Mutex<Crossing>,
}

impl Counters {
    pub(crate) fn new(most_locks: usize) -> Counters {
        Counters {
            all: Tally::new(None),
            of_client: ClientMeters::new(),
            of_locks: Mutex::default(),
            most_locks,
            wake_ups_ignored: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            crossing: Mutex::default(),
        }
    }

    /// A claim has become a hold. Before its caller is woken, which finds it counted.
    pub(crate) fn granted(&self, lock: &LockId, request: RequestId, by: GrantedBy, waited: Duration) {
        let told = by == GrantedBy::Polling && self.crossing.lock().found(request);
        let by = if told { GrantedBy::WakeUp } else { by };
        self.count(lock, |tally| tally.granted(by, waited));
    }

    /// The same for the recorder of the metrics, after the caller is woken: it takes time, and is the program's code.
    /// `own_end`: how this hold may end that others can't.
    pub(crate) fn meter_grant(
        &self,
        lock: &LockId,
        by: GrantedBy,
        waited: Duration,
        own_end: Option<LostCause>,
    ) {
        self.meter(lock, |tally| tally.meters.granted(by, waited, own_end));
    }

    /// A call has ended without the lock, after this wait.
    pub(crate) fn not_granted(&self, lock: &LockId, outcome: Outcome, waited: Duration) {
        self.count(lock, |tally| tally.not_granted(lock.kind, outcome, waited));
        self.meter(lock, |tally| tally.meters.not_granted(lock.kind, outcome, waited));
    }

    /// The number of requests that stand in line or wait for a plain lock now.
    pub(crate) fn waiting(&self, now: usize) {
        self.of_client.waiting(now);
    }

    /// Whether the server answers.
    pub(crate) fn outage(&self, lasts: bool) {
        self.of_client.outage(lasts);
    }

    /// A request has joined the line, or got the lock at once.
    pub(crate) fn asked(&self, lock: &LockId, waiters_ahead: u64) {
        self.meter(lock, |tally| tally.meters.asked(waiters_ahead));
    }

    pub(crate) fn held(&self, lock: &LockId, held_for: Duration) {
        self.count(lock, |tally| tally.held(held_for));
        self.meter(lock, |tally| tally.meters.held(held_for));
    }

    pub(crate) fn renewed(&self, lock: &LockId, punctuality: Punctuality) {
        self.count(lock, |tally| tally.renewed(punctuality));
        self.meter(lock, |tally| tally.meters.renewed(punctuality));
    }

    pub(crate) fn lost(&self, lock: &LockId) {
        self.count(lock, Tally::lost);
    }

    /// For the recorder, after those who wait for news of the hold are woken.
    pub(crate) fn meter_loss(&self, lock: &LockId, cause: LostCause) {
        self.meter(lock, |tally| tally.meters.lost(cause));
    }

    pub(crate) fn place_lost(&self, lock: &LockId) {
        self.count(lock, Tally::place_lost);
    }

    fn count(&self, lock: &LockId, count: impl Fn(&Tally)) {
        count(&self.all);
        if let Some(tally) = self.of_lock(lock) {
            count(&tally);
        }
    }

    /// Each event is in one series: the lock's own, or that of all others.
    fn meter(&self, lock: &LockId, meter: impl Fn(&Tally)) {
        if cfg!(feature = "metrics") {
            self.of_lock(lock).map_or_else(|| meter(&self.all), |tally| meter(&tally));
        }
    }

    /// What is counted for this lock, if it is counted by itself. Makes the tally without the mutex: that runs the program's
    /// code. Two threads may both make one; the first stays.
    fn of_lock(&self, lock: &LockId) -> Option<Arc<Tally>> {
        if self.most_locks == 0 {
            return None;
        }
        {
            let locks = self.of_locks.lock();
            let known = locks.get(&lock.name).map(Arc::clone);
            if known.is_some() || locks.len() >= self.most_locks {
                return known;
            }
        }
        let made = Arc::new(Tally::new(Some(lock)));
        let mut locks = self.of_locks.lock();
        if locks.len() >= self.most_locks {
            return locks.get(&lock.name).map(Arc::clone);
        }
        Some(Arc::clone(locks.entry(lock.name.clone()).or_insert(made)))
    }

    /// A message tells of a grant to a request that doesn't wait. True if asking has just been quicker.
    pub(crate) fn told_too_late(&self, lock: &LockName, request: RequestId) -> bool {
        let was_found = self.crossing.lock().told(request);
        if was_found {
            self.all.was_woken();
            // It was counted when it was found.
            let of_lock = self.of_locks.lock().get(lock).map(Arc::clone);
            of_lock.iter().for_each(|tally| tally.was_woken());
        }
        was_found
    }

    /// An answer has told of the grant of this request, before its message has come.
    pub(crate) fn granted_by_answer(&self, request: RequestId) {
        self.crossing.lock().granted_by_answer(request);
    }

    /// Whether an answer has told of the grant of this request, some time ago.
    pub(crate) fn knew_by_answer(&self, request: RequestId) -> bool {
        self.crossing.lock().knew_by_answer(request)
    }

    /// Whether a grant to an unknown request is to be released.
    pub(crate) fn may_return(&self, request: RequestId, now: Instant) -> bool {
        self.crossing.lock().may_return(request, now)
    }

    /// All but what is not counted here: reconnects of the backend, and the requests that wait.
    pub(crate) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats { wake_ups_ignored: read(&self.wake_ups_ignored), gaps: read(&self.gaps), ..self.all.read() }
    }

    /// None if the lock is not counted by itself, and will not be.
    pub(crate) fn read_lock(&self, lock: &LockName) -> Option<Stats> {
        let locks = self.of_locks.lock();
        match locks.get(lock) {
            Some(tally) => Some(tally.read()),
            None => (locks.len() < self.most_locks).then(Stats::default),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LockKind, OwnerId};

    #[test]
    fn a_grant_found_by_asking_while_its_message_was_under_way_came_by_the_message() {
        let counters = Counters::new(1);
        let lock = LockId::new(LockName::new("crossing").unwrap(), LockKind::Fair);
        let counted = || {
            let [all, of_lock] = [counters.read(), counters.read_lock(&lock.name).unwrap()];
            assert_eq!(all, of_lock);
            (all.granted_by_wake_up, all.granted_by_polling)
        };
        let [one, two, three] = [1, 2, 3].map(RequestId::new);
        let polled = |request| counters.granted(&lock, request, GrantedBy::Polling, Duration::ZERO);
        polled(one);
        assert_eq!(counted(), (0, 1));
        assert!(counters.told_too_late(&lock.name, one));
        assert_eq!(counted(), (1, 0));
        assert!(!counters.told_too_late(&lock.name, one), "a second message changes nothing");
        // The message is handled between the answer and its count.
        assert!(!counters.told_too_late(&lock.name, two));
        polled(two);
        assert_eq!(counted(), (2, 0));
        polled(three);
        assert_eq!(counted(), (2, 1));
    }

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

    #[test]
    fn the_text_lists_the_first_ten_that_wait_and_how_many_more_there_are() {
        let owner = OwnerId::new("c:1");
        let waits = |n: u64| WaitingRequest {
            lock: LockName::new(&format!("n:{n}")).unwrap(),
            kind: LockKind::Fair,
            owner: owner.clone(),
            takes: 1,
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

    #[test]
    fn no_more_locks_are_counted_than_were_asked_for() {
        let counters = Counters::new(2);
        let name = |n| LockName::new(&format!("lock:{n}")).unwrap();
        let locks: Vec<_> = (0..4).map(|n| LockId::new(name(n), LockKind::Fair)).collect();
        locks.iter().for_each(|lock| counters.held(lock, Duration::from_secs(1)));
        let counted = |lock: &LockId| counters.read_lock(&lock.name).map(|stats| stats.holds.count);
        assert_eq!(locks.iter().map(counted).collect::<Vec<_>>(), [Some(1), Some(1), None, None]);
        assert_eq!(counters.read().holds.count, 4);
        assert_eq!(Counters::new(0).read_lock(&locks[0].name), None);
    }
}
