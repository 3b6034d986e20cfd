//! Counts of what happened to a client's requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::backend::RequestId;
use crate::claim::GrantedBy;

/// What happened to the requests of a client since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Locks that were free at the first attempt.
    pub granted_at_once: u64,
    /// Locks that came by a wake-up.
    pub granted_by_wake_up: u64,
    /// Locks that were found free without a wake-up: its message was lost, or the holder died or was lost.
    pub granted_by_polling: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Places that the server had dropped, and that were asked for again.
    pub places_lost: u64,
    /// Wake-ups that named no request of this client that waits.
    pub wake_ups_ignored: u64,
    /// Gaps in the wake-ups.
    pub gaps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    at_once: AtomicU64,
    by_wake_up: AtomicU64,
    by_polling: AtomicU64,
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
}

/// How many are remembered: a message is late by milliseconds.
const REMEMBERED: usize = 64;

impl Counters {
    pub(crate) fn granted(&self, request: RequestId, by: GrantedBy) {
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

    pub(crate) fn read(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            granted_at_once: read(&self.at_once),
            granted_by_wake_up: read(&self.by_wake_up),
            granted_by_polling: read(&self.by_polling),
            lost: read(&self.lost),
            places_lost: read(&self.places_lost),
            wake_ups_ignored: read(&self.wake_ups_ignored),
            gaps: read(&self.gaps),
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
        counters.granted(one, GrantedBy::Polling);
        assert_eq!(counted(), (0, 1));
        assert!(counters.told_too_late(one));
        assert_eq!(counted(), (1, 0));
        assert!(!counters.told_too_late(one), "a second message is none");
        // The message is handled between the answer and its count.
        assert!(!counters.told_too_late(two));
        counters.granted(two, GrantedBy::Polling);
        assert_eq!(counted(), (2, 0));
        counters.granted(three, GrantedBy::Polling);
        assert_eq!(counted(), (2, 1));
    }
}
