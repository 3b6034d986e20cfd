//! Counts of what happened to a client's requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::WaitingRequest;
use crate::backend::RequestId;
use crate::claim::{GrantedBy, Punctuality};

/// What happened to the requests of a client since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Locks that were free at the first attempt.
    pub granted_at_once: u64,
    /// Locks that came by a wake-up.
    pub granted_by_wake_up: u64,
    /// Locks that were found free without a wake-up: its message was lost, or the holder died or was lost.
    pub granted_by_polling: u64,
    /// How long those took that were granted.
    pub waits: Waits,
    /// Renewals of holds that the server answered; those of places are not counted.
    pub renewals: u64,
    /// Those of them that took more than one attempt, or were sent when more than half of the time that they had was over.
    pub late_renewals: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Places that the server had dropped and did not put back: these waiters went to the tail.
    pub places_lost: u64,
    /// Wake-ups that named no request of this client that waits.
    pub wake_ups_ignored: u64,
    /// Gaps in the wake-ups: one for each time that the connection for them was made anew.
    pub gaps: u64,
    /// Connections that were made anew to the same server after they were lost: those for commands, of all clients of this
    /// backend, and that for this client's wake-ups (`gaps`).
    pub reconnects: u64,
    /// What waits at this moment, and where in the line; as [`Client::waiting`](crate::Client::waiting) tells it.
    pub waiting: Vec<WaitingRequest>,
}

/// How long requests waited until they were granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// How many there were.
    pub count: u64,
    /// Half of the latest 1,024 took no longer.
    pub median: Duration,
    /// 95 of 100 of these.
    pub p95: Duration,
    /// 99 of 100 of these.
    pub p99: Duration,
    /// The longest of all.
    pub longest: Duration,
}

/// How many waits the percentiles are of.
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
            // The oldest: as many were added before it as have a place.
            let at = usize::try_from(self.count % WAITS as u64).unwrap_or(0);
            self.latest[at] = wait;
        }
        self.count += 1;
        self.longest = self.longest.max(wait);
    }

    fn read(&self) -> Waits {
        let mut sorted = self.latest.clone();
        sorted.sort_unstable();
        // The smallest that so many of a hundred do not exceed.
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

/// Grants that a look found, and messages of grants that were known already: where both name one request the message
/// was under way when the look was answered, and not lost. Whichever comes second completes the pair.
#[derive(Debug, Default)]
struct Crossing {
    found: VecDeque<RequestId>,
    told: VecDeque<RequestId>,
    /// Other grants that an answer told of, whose messages may come when all is over.
    known: VecDeque<RequestId>,
    /// Grants of requests that nobody here knows, and when they were left to be given back.
    returned: VecDeque<(RequestId, Instant)>,
}

/// How many are remembered: a message is late by milliseconds.
const REMEMBERED: usize = 64;

/// No more grants than this are given back unasked in [`RETURNS_WITHIN`]: each costs a question, and messages can be forged.
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

    /// A message tells of a grant to a request that doesn't wait. True if a look has just been quicker.
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

    /// Whether a grant of a request that nobody here knows is to be given back: once, and only a few in a time. A flood of
    /// such messages must not become a flood of questions; what is left out ends with its lease.
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

    /// All but what is not counted here: reconnects by the backend, and who waits.
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
    fn a_grant_that_a_look_found_while_its_message_was_under_way_came_by_the_message() {
        let counters = Counters::default();
        let counted = || (counters.read().granted_by_wake_up, counters.read().granted_by_polling);
        let [one, two, three] = [1, 2, 3].map(RequestId::new);
        counters.granted(one, GrantedBy::Polling, Duration::ZERO);
        assert_eq!(counted(), (0, 1));
        assert!(counters.told_too_late(one));
        assert_eq!(counted(), (1, 0));
        assert!(!counters.told_too_late(one), "a second message is none");
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
        assert!(!counters.may_return(RequestId::new(1), start), "it is given back once");
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
