//! One lock: its holders and its line.

use std::time::Duration;

use fairlock_core::backend::{Acquired, Hold, Place, RequestId};
use fairlock_core::{FencingToken, LockKind, OwnerId};

/// One lock. Fair and plain handles are treated alike, since a plain lock has no order to keep. They have one holder at most.
#[derive(Default)]
pub(crate) struct Entry {
    /// In the order of their tokens.
    pub(crate) holders: Vec<Kept>,
    pub(crate) line: Vec<Kept>,
}

/// A hold, or a place: one request in either case.
pub(crate) struct Kept {
    /// That of its lock.
    pub(crate) kind: LockKind,
    pub(crate) takes: u32,
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    /// The token of a hold, the ticket of a place.
    pub(crate) number: u64,
    pub(crate) holds: u32,
    /// The end of the lease, or the time when the place counts as abandoned.
    pub(crate) ends: u64,
    pub(crate) lease: u64,
    pub(crate) label: String,
}

impl Entry {
    pub(crate) fn rank(&self, place: &Place<'_>) -> Option<usize> {
        self.line.iter().position(|kept| kept.is(place.owner, place.request))
    }

    pub(crate) fn held_by(&self, place: &Place<'_>) -> Option<&Kept> {
        self.holders.iter().find(|holder| holder.is(place.owner, place.request))
    }

    pub(crate) fn held_as(&mut self, hold: &Hold<'_>) -> Option<&mut Kept> {
        self.holders.iter_mut().find(|holder| holder.is_held_as(hold))
    }

    pub(crate) fn end(&mut self, hold: &Hold<'_>) {
        self.holders.retain(|holder| !holder.is_held_as(hold));
    }

    /// Whether so many units are free.
    pub(crate) fn fits(&self, takes: u32) -> bool {
        let taken: u32 = self.holders.iter().map(|holder| holder.takes).sum();
        self.holders.first().is_none_or(|holder| takes <= holder.kind.capacity() - taken)
    }

    pub(crate) fn remove(&mut self, place: &Place<'_>) {
        self.line.retain(|kept| !kept.is(place.owner, place.request));
    }

    /// How long the hold lasts that ends first.
    pub(crate) fn left(&self, now: u64) -> Duration {
        self.holders.iter().map(|holder| holder.left(now)).min().unwrap_or_default()
    }

    /// The first in line asks again when a hold would end. The others get a message, or find out by their
    /// heartbeats.
    pub(crate) fn rank_and_recheck_in(&self, place: &Place<'_>, now: u64) -> (u64, Duration) {
        let rank = self.rank(place).unwrap_or(0);
        let recheck_in = if rank == 0 { self.left(now) + Duration::from_millis(1) } else { Duration::MAX };
        (rank as u64, recheck_in)
    }

    pub(crate) fn queued(&self, place: &Place<'_>, now: u64, latest: u64) -> Acquired {
        let (rank, recheck_in) = self.rank_and_recheck_in(place, now);
        let ticket = self.line.get(rank as usize).map_or(0, |kept| kept.number);
        Acquired::Queued { rank, recheck_in, ticket, latest }
    }
}

impl Kept {
    pub(crate) fn new(place: &Place<'_>, label: &str, number: u64, lease: Duration, ends: u64) -> Kept {
        let (kind, takes) = (place.lock.kind, place.takes);
        let (owner, request, label) = (place.owner.clone(), place.request, label.to_owned());
        Kept { kind, takes, owner, request, number, holds: 1, ends, lease: millis(lease), label }
    }

    pub(crate) fn is(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.request == request && self.owner == *owner
    }

    pub(crate) fn is_held_as(&self, hold: &Hold<'_>) -> bool {
        self.is(hold.owner, hold.request) && self.token() == hold.token
    }

    pub(crate) fn token(&self) -> FencingToken {
        FencingToken::new(self.number)
    }

    pub(crate) fn left(&self, now: u64) -> Duration {
        Duration::from_millis(self.ends.saturating_sub(now))
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    // Longer than any lease, and safe from overflow when `now` is added.
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(1 << 60)
}
