//! Counts of what has happened to a client's requests. Each grant is counted once, though an answer and a message may tell of it, in
//! either order.

mod meters;
mod tally;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(crate) use tally::count;
pub use tally::{NotGranted, NotGrantedByKind, Stats, Times};

use meters::ClientMeters;
use tally::Tally;

use crate::backend::{LockId, RequestId};
use crate::claim::{GrantedBy, Punctuality};
use crate::error::{Error, LostCause};
use crate::ids::LockName;

/// What happens to the requests and the holds of a lock.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "some of it is for the recorder only"))]
pub(crate) enum Event {
    /// A request has joined the queue, or got the lock at once, with this many waiters ahead.
    Asked(u64),
    /// A slow wait was explained.
    SlowWait,
    /// A claim has become a hold. `own_end`: how this hold may end that others can't.
    Granted {
        by: GrantedBy,
        waited: Duration,
        own_end: Option<LostCause>,
    },
    /// A call has ended without the lock, after this wait.
    NotGranted(Outcome, Duration),
    /// The server has dropped a place, and did not restore it.
    PlaceLost,
    /// The server has answered the renewal of a hold.
    Renewed(Punctuality),
    /// A hold is over that lasted so long.
    Held(Duration),
    Lost(LostCause),
}

/// How one call ended without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Busy,
    TimedOut,
    Cancelled,
    Unavailable,
    Refused,
}

/// With the value of the label `outcome`.
const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Busy, "busy"),
    (Outcome::TimedOut, "timed_out"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::Unavailable, "unavailable"),
    (Outcome::Refused, "refused"),
];

impl Outcome {
    /// Its name in metrics and spans.
    pub(crate) fn name(self) -> &'static str {
        OUTCOMES[self as usize].1
    }

    /// The outcome of this error; none for a mistake or the end of the program, since neither concerns a server or another owner.
    pub(crate) fn of(error: &Error) -> Option<Outcome> {
        match error {
            Error::Cancelled { .. } => Some(Outcome::Cancelled),
            Error::Unavailable { .. } => Some(Outcome::Unavailable),
            Error::Denied { .. }
            | Error::Corrupt { .. }
            | Error::Mismatch { .. }
            | Error::Unsupported { .. }
            | Error::InvalidName { .. }
            | Error::InvalidConfig { .. } => Some(Outcome::Refused),
            Error::NotHeld { .. }
            | Error::Lost(_)
            | Error::Misuse { .. }
            | Error::Shutdown { .. }
            | Error::Unsettled { .. } => None,
        }
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
    /// No call to these counters stands under this mutex.
    pub(crate) crossing: Mutex<Crossing>,
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

    /// Something has happened to a request or a hold of this lock.
    pub(crate) fn happened(&self, lock: &LockId, event: Event) {
        self.count(lock, event);
        self.meter(lock, event);
    }

    /// The numbers that the program reads: before a caller is woken, which finds the event counted.
    pub(crate) fn count(&self, lock: &LockId, event: Event) {
        self.all.count(lock.kind, event);
        if let Some(tally) = self.of_lock(lock) {
            tally.count(lock.kind, event);
        }
    }

    /// The recorder of the metrics: after those who wait for news are woken, since it takes time, and is the program's code. Each
    /// event is in one series: the lock's own, or that of all others.
    pub(crate) fn meter(&self, lock: &LockId, event: Event) {
        if cfg!(feature = "metrics") {
            self.of_lock(lock).as_deref().unwrap_or(&self.all).meters.record(lock.kind, event);
        }
    }

    /// The number of requests that stand in the queue or wait for a plain lock now.
    pub(crate) fn waiting(&self, now: usize) {
        self.of_client.waiting(now);
    }

    /// Whether the server answers.
    pub(crate) fn outage(&self, lasts: bool) {
        self.of_client.outage(lasts);
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

    /// How this grant counts: by a wake-up, if its message has come while its answer was on its way.
    pub(crate) fn counts_by(&self, request: RequestId, by: GrantedBy) -> GrantedBy {
        let was_told = by == GrantedBy::Polling && self.crossing.lock().found(request);
        if was_told { GrantedBy::WakeUp } else { by }
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

/// Grants that were found by asking, and messages about grants that came too late. When both name one request, the message
/// was under way while the question was answered, and not lost. Whichever comes second completes the pair.
#[derive(Default)]
pub(crate) struct Crossing {
    found: VecDeque<RequestId>,
    told: VecDeque<RequestId>,
    /// Other grants that an answer told of; their messages may come when the hold is already over.
    known: VecDeque<RequestId>,
    /// Grants to requests that this client does not know, and when their release was scheduled.
    returned: VecDeque<(RequestId, Instant)>,
    /// Requests whose holds wait for an adopter: a late message about the grant releases no such hold.
    handed_over: VecDeque<RequestId>,
}

/// How many requests are remembered: a message is late by milliseconds.
const REMEMBERED: usize = 64;
/// How many hand-overs: in an outage a message may be late by seconds.
const HAND_OVERS: usize = 1024;

/// How many unknown grants are released within [`RETURNS_WITHIN`]: each costs a round trip, and messages can be forged.
const MOST_RETURNS: usize = 16;
const RETURNS_WITHIN: Duration = Duration::from_secs(10);

impl Crossing {
    /// A grant was found by asking. True if its message has come meanwhile.
    fn found(&mut self, request: RequestId) -> bool {
        let was_told = take(&mut self.told, request);
        if !was_told {
            remember(&mut self.found, REMEMBERED, request);
        }
        was_told
    }

    /// A message tells of a grant to a request that doesn't wait. True if asking has just been quicker.
    fn told(&mut self, request: RequestId) -> bool {
        let was_found = take(&mut self.found, request);
        if !was_found {
            remember(&mut self.told, REMEMBERED, request);
        }
        was_found
    }

    /// An answer has told of the grant of this request, before its message has come.
    pub(crate) fn granted_by_answer(&mut self, request: RequestId) {
        remember(&mut self.known, REMEMBERED, request);
    }

    /// Whether an answer has told of the grant of this request, some time ago, or its hold waits for an adopter.
    pub(crate) fn knew(&mut self, request: RequestId) -> bool {
        take(&mut self.known, request) || self.handed_over.contains(&request)
    }

    /// The hold of this request waits for an adopter.
    pub(crate) fn handed_over(&mut self, request: RequestId) {
        remember(&mut self.handed_over, HAND_OVERS, request);
    }

    /// Whether a grant to an unknown request is to be released: each once, and only a few within a time. A flood of such messages must
    /// not become a flood of round trips; the other grants end with their leases.
    pub(crate) fn may_return(&mut self, request: RequestId, now: Instant) -> bool {
        let returned = &mut self.returned;
        let is_recent = |at: Instant| now.saturating_duration_since(at) < RETURNS_WITHIN;
        let is_full = returned.len() == MOST_RETURNS && returned.back().is_some_and(|(_, at)| is_recent(*at));
        if is_full || returned.iter().any(|(other, at)| *other == request && is_recent(*at)) {
            return false;
        }
        returned.truncate(MOST_RETURNS - 1);
        returned.push_front((request, now));
        true
    }
}

fn take(requests: &mut VecDeque<RequestId>, request: RequestId) -> bool {
    let at = requests.iter().position(|other| *other == request);
    at.and_then(|at| requests.remove(at)).is_some()
}

fn remember(requests: &mut VecDeque<RequestId>, most: usize, request: RequestId) {
    requests.truncate(most - 1);
    requests.push_front(request);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LockKind;

    /// A grant that was found by asking while its message was under way counts as a grant by the message.
    #[test]
    fn a_grant_that_crosses_its_message_counts_as_a_wake_up() {
        let counters = Counters::new(1);
        let lock = LockId::new(LockName::new("crossing").unwrap(), LockKind::Fair);
        let counted = || {
            let [all, of_lock] = [counters.read(), counters.read_lock(&lock.name).unwrap()];
            assert_eq!(all, of_lock);
            (all.granted_by_wake_up, all.granted_by_polling)
        };
        let [one, two, three] = [1, 2, 3].map(RequestId::new);
        let polled = |request| {
            let by = counters.counts_by(request, GrantedBy::Polling);
            counters.count(&lock, Event::Granted { by, waited: Duration::ZERO, own_end: None });
        };
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
    fn no_more_locks_are_counted_than_were_asked_for() {
        let counters = Counters::new(2);
        let name = |n| LockName::new(&format!("lock:{n}")).unwrap();
        let locks: Vec<_> = (0..4).map(|n| LockId::new(name(n), LockKind::Fair)).collect();
        assert_eq!(counters.read_lock(&locks[0].name), Some(Stats::default()), "it may still be counted");
        locks.iter().for_each(|lock| counters.happened(lock, Event::Held(Duration::from_secs(1))));
        let counted = |lock: &LockId| counters.read_lock(&lock.name).map(|stats| stats.holds.count);
        assert_eq!(locks.iter().map(counted).collect::<Vec<_>>(), [Some(1), Some(1), None, None]);
        assert_eq!(counters.read().holds.count, 4);
        assert_eq!(Counters::new(0).read_lock(&locks[0].name), None);
    }

    #[test]
    fn a_flood_of_unknown_grants_is_answered_a_few_times_only() {
        let mut crossing = Crossing::default();
        let start = Instant::now();
        assert!(crossing.may_return(RequestId::new(1), start));
        assert!(!crossing.may_return(RequestId::new(1), start), "it is released once");
        let returned = (1..1000).filter(|n| crossing.may_return(RequestId::new(*n), start)).count();
        assert_eq!(returned, MOST_RETURNS - 1);
        let later = start + RETURNS_WITHIN;
        assert!(crossing.may_return(RequestId::new(1), later));
        let returned = (1..1000).filter(|n| crossing.may_return(RequestId::new(*n), later)).count();
        assert_eq!(returned, MOST_RETURNS - 1, "as few as before");
    }

    #[test]
    fn the_latest_requests_are_remembered_so_many_and_each_once() {
        let mut crossing = Crossing::default();
        let most = REMEMBERED as u64;
        (0..=most).for_each(|n| crossing.granted_by_answer(RequestId::new(n)));
        assert!(!crossing.knew(RequestId::new(0)), "the oldest is forgotten");
        for n in 1..=most {
            assert!(crossing.knew(RequestId::new(n)) && !crossing.knew(RequestId::new(n)));
        }
    }
}
