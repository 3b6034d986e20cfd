//! Counts of what has happened to a client's requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::WaitingRequest;
use crate::backend::RequestId;
use crate::claim::{GrantedBy, Punctuality};

/// What has happened to the requests of a client since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Grants at the first attempt: the lock was free.
    pub granted_at_once: u64,
    /// Grants by a wake-up.
    pub granted_by_wake_up: u64,
    /// Grants by asking again without a wake-up: its message was lost, or the holder died or lost its hold.
    pub granted_by_polling: u64,
    /// How long the granted requests waited.
    pub waits: Waits,
    /// Renewals of holds that the server answered. Those of places are not counted.
    pub renewals: u64,
    /// Renewals of holds that took more than one attempt, or were sent when more than half of their time was over.
    pub late_renewals: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Places that the server had dropped and did not restore: these waiters went to the tail.
    pub places_lost: u64,
    /// Wake-ups that named no waiting request of this client.
    pub wake_ups_ignored: u64,
    /// Gaps in the wake-ups, one for each reconnect of the connection that carries them.
    pub gaps: u64,
    /// Reconnects to the same server after a connection was lost: those for commands, of all clients of this backend, and
    /// those for this client's wake-ups (`gaps`).
    pub reconnects: u64,
    /// The requests that wait now, and where in the line, as in [`Client::waiting`](crate::Client::waiting).
    pub waiting: Vec<WaitingRequest>,
}

/// How long granted requests waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// How many were granted.
    pub count: u64,
    /// The median of the latest 1,024 waits.
    pub median: Duration,
    /// The 95th percentile of the latest 1,024 waits.
    pub p95: Duration,
    /// The 99th percentile of the latest 1,024 waits.
    pub p99: Duration,
    /// The longest of all waits.
    pub longest: Duration,
}

/// How many of the latest waits the percentiles are taken from.
const WAITS: usize = 1024;

#[derive(Debug, Default)]
struct WaitTimes {
    latest: Vec<Duration>,
    count: u64,
    longest: Duration,
}

impl WaitTimes {
    fn add(&mut self, wait: Duration) {
        if self.latest.len() < WAITS {
            self.latest.push(wait);
        } else {
            // Replaces the oldest.
            let at = usize::try_from(self.count % WAITS as u64).unwrap_or(0);
            self.latest[at] = wait;
        }
        self.count += 1;
        self.longest = self.longest.max(wait);
    }

    fn read(&self) -> Waits {
        let mut sorted = self.latest.clone();
        sorted.sort_unstable();
        // The smallest wait that this many of a hundred do not exceed.
        let of = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or_default()
        };
        Waits { count: self.count, median: of(50), p95: of(95), p99: of(99), longest: self.longest }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    at_once: AtomicU64,
    by_wake_up: AtomicU64,
    by_polling: AtomicU64,
    renewals: AtomicU64,
    late_renewals: AtomicU64,
    waits: Mutex<WaitTimes>,
    pub(crate) lost: AtomicU64,
    pub(crate) places_lost: AtomicU64,
    pub(crate) wake_ups_ignored: AtomicU64,
    pub(crate) gaps: AtomicU64,
    crossing: Mutex<Crossing>,
}

/// Grants that were found by asking, and messages about grants that came too late. When both name one request, the message
/// was under way while the question was answered, and not lost. Whichever comes second completes the pair.
#[derive(Debug, Default)]
struct Crossing {
    found: VecDeque<RequestId>,
    told: VecDeque<RequestId>,
    /// Other grants that an answer told of; their messages may come when the hold is already over.
    known: VecDeque<RequestId>,
    /// Grants to requests that this client does not know, and when their release was scheduled.
    returned: VecDeque<(RequestId, Instant)>,
}

/// How many requests are remembered: a message is late by milliseconds.
const REMEMBERED: usize = 64;

/// How many unknown grants are released within [`RETURNS_WITHIN`]: each costs a round trip, and messages can be forged.
const MOST_RETURNS: usize = 16;
const RETURNS_WITHIN: Duration = Duration::from_secs(10);

impl Counters {
    pub(crate) fn renewed(&self, punctuality: Punctuality) {
        count(&self.renewals);
        if punctuality == Punctuality::Late {
            count(&self.late_renewals);
        }
    }

    pub(crate) fn granted(&self, request: RequestId, by: GrantedBy, waited: Duration) {
        self.waits.lock().add(waited);
        match by {
            GrantedBy::FirstAsk => count(&self.at_once),
            GrantedBy::WakeUp => count(&self.by_wake_up),
            GrantedBy::Polling => {
                let mut crossing = self.crossing.lock();
                if take(&mut crossing.told, request) {
                    count(&self.by_wake_up);
                } else {
                    count(&self.by_polling);
                    remember(&mut crossing.found, request);
                }
            }
        }
    }

    /// A message tells of a grant to a request that doesn't wait. True if asking has just been quicker.
    pub(crate) fn told_too_late(&self, request: RequestId) -> bool {
        let mut crossing = self.crossing.lock();
        if !take(&mut crossing.found, request) {
            remember(&mut crossing.told, request);
            return false;
        }
        self.by_polling.fetch_sub(1, Ordering::Relaxed);
        count(&self.by_wake_up);
        true
    }

    /// An answer has told of the grant of this request, before its message has come.
    pub(crate) fn granted_by_answer(&self, request: RequestId) {
        remember(&mut self.crossing.lock().known, request);
    }

    /// Whether an answer has told of the grant of this request, some time ago.
    pub(crate) fn knew_by_answer(&self, request: RequestId) -> bool {
        take(&mut self.crossing.lock().known, request)
    }

    /// Whether a grant to an unknown request is to be released: each once, and only a few within a time. A flood of such
    /// messages must not become a flood of round trips; what is left out ends with its lease.
    pub(crate) fn may_return(&self, request: RequestId, now: Instant) -> bool {
        let returned = &mut self.crossing.lock().returned;
        let is_recent = |at: Instant| now.saturating_duration_since(at) < RETURNS_WITHIN;
        let is_full = returned.len() == MOST_RETURNS && returned.back().is_some_and(|(_, at)| is_recent(*at));
        if is_full || returned.iter().any(|(other, at)| *other == request && is_recent(*at)) {
            return false;
        }
        returned.truncate(MOST_RETURNS - 1);
        returned.push_front((request, now));
        true
    }

    /// All but what is not counted here: reconnects of the backend, and the requests that wait.
    pub(crate) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            granted_at_once: read(&self.at_once),
            granted_by_wake_up: read(&self.by_wake_up),
            granted_by_polling: read(&self.by_polling),
            waits: self.waits.lock().read(),
            renewals: read(&self.renewals),
            late_renewals: read(&self.late_renewals),
            lost: read(&self.lost),
            places_lost: read(&self.places_lost),
            wake_ups_ignored: read(&self.wake_ups_ignored),
            gaps: read(&self.gaps),
            ..Stats::default()
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn take(requests: &mut VecDeque<RequestId>, request: RequestId) -> bool {
    let at = requests.iter().position(|other| *other == request);
    at.and_then(|at| requests.remove(at)).is_some()
}

fn remember(requests: &mut VecDeque<RequestId>, request: RequestId) {
    requests.truncate(REMEMBERED - 1);
    requests.push_front(request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_found_by_asking_while_its_message_was_under_way_came_by_the_message() {
        let counters = Counters::default();
        let counted = || (counters.read().granted_by_wake_up, counters.read().granted_by_polling);
        let [one, two, three] = [1, 2, 3].map(RequestId::new);
        counters.granted(one, GrantedBy::Polling, Duration::ZERO);
        assert_eq!(counted(), (0, 1));
        assert!(counters.told_too_late(one));
        assert_eq!(counted(), (1, 0));
        assert!(!counters.told_too_late(one), "a second message changes nothing");
        // The message is handled between the answer and its count.
        assert!(!counters.told_too_late(two));
        counters.granted(two, GrantedBy::Polling, Duration::ZERO);
        assert_eq!(counted(), (2, 0));
        counters.granted(three, GrantedBy::Polling, Duration::ZERO);
        assert_eq!(counted(), (2, 1));
    }

    #[test]
    fn a_flood_of_unknown_grants_is_answered_a_few_times_only() {
        let counters = Counters::default();
        let start = Instant::now();
        assert!(counters.may_return(RequestId::new(1), start));
        assert!(!counters.may_return(RequestId::new(1), start), "it is released once");
        let returned = (1..1000).filter(|n| counters.may_return(RequestId::new(*n), start)).count();
        assert_eq!(returned, MOST_RETURNS - 1);
        let later = start + RETURNS_WITHIN;
        assert!(counters.may_return(RequestId::new(1), later));
    }

    #[test]
    fn percentiles_are_of_the_latest_waits_and_the_longest_is_of_all() {
        let mut waits = WaitTimes::default();
        assert_eq!(waits.read(), Waits::default());
        waits.add(Duration::from_secs(99));
        assert_eq!(waits.read().median, Duration::from_secs(99));
        for n in 0..WAITS {
            waits.add(Duration::from_millis(n as u64 % 100 + 1));
        }
        let Waits { count, median, p95, p99, longest } = waits.read();
        assert_eq!((count, longest), (1025, Duration::from_secs(99)));
        let near = |time: Duration, millis: u64| time.as_millis().abs_diff(u128::from(millis)) <= 1;
        assert!(near(median, 50) && near(p95, 95) && near(p99, 99), "{median:?} {p95:?} {p99:?}");
    }
}
