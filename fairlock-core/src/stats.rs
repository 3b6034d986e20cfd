//! Counts of what happened to a client's requests.

use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Counters {
    pub(crate) fn granted(&self, by: GrantedBy) {
        count(match by {
            GrantedBy::FirstAsk => &self.at_once,
            GrantedBy::WakeUp => &self.by_wake_up,
            GrantedBy::Polling => &self.by_polling,
        });
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
