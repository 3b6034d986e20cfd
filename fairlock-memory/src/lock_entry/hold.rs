//! The holds of a lock: each has its owner, the units that it takes, and an end of its own.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use fairlock_core::backend::{Acquired, Hold, Holder, RequestId};
use fairlock_core::{FencingToken, OwnerId};

use crate::turn::Moment;

/// A hold, named by owner, request and token.
pub(super) struct KeptHold {
    pub(super) owner: OwnerId,
    pub(super) request: RequestId,
    pub(super) token: FencingToken,
    pub(super) takes: u32,
    pub(super) holds: u32,
    pub(super) since: Moment,
    pub(super) ends: Moment,
    pub(super) label: Arc<str>,
}

impl KeptHold {
    fn is_of(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.request == request && self.owner == *owner
    }

    /// What is left of its lease.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.ends.saturating_sub(now)
    }

    pub(super) fn granted(&self, now: Moment) -> Acquired {
        Acquired::Granted { token: self.token, lease: self.left(now) }
    }

    /// The holder as an operator sees it.
    pub(super) fn inspect(&self, now: Moment) -> Holder {
        let mut holder = Holder::new(self.owner.clone(), self.holds);
        holder.takes = self.takes;
        holder.request = Some(self.request);
        holder.token = Some(self.token);
        holder.lease_left = Some(self.left(now));
        holder.held_for = Some(now.saturating_sub(self.since));
        holder.label = (!self.label.is_empty()).then(|| String::from(&*self.label));
        holder
    }
}

/// All holds of a lock, in the order of their tokens. An exclusive lock has one at most, for which nothing is allocated.
#[derive(Default)]
pub(super) struct Holds {
    kept: SmallVec<[KeptHold; 1]>,
    /// The units that they take together.
    taken: u32,
    /// None of them ends before this, so most calls need not look for one that has ended.
    none_ends_before: Moment,
}

impl Holds {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    pub(super) fn iter(&self) -> slice::Iter<'_, KeptHold> {
        self.kept.iter()
    }

    /// Adds a hold. Its token is greater than all before, and its units are free.
    pub(super) fn add(&mut self, hold: KeptHold) {
        self.taken += hold.takes;
        self.none_ends_before = self.none_ends_before.min(hold.ends);
        self.kept.push(hold);
    }

    /// A hold whose lease has ended is none.
    pub(super) fn drop_over(&mut self, now: Moment) {
        if now >= self.none_ends_before {
            self.look_for_ends(now);
        }
    }

    fn look_for_ends(&mut self, now: Moment) {
        let Holds { kept, taken, none_ends_before } = self;
        *none_ends_before = Moment::MAX;
        kept.retain(|hold| {
            let lasts = now < hold.ends;
            if lasts {
                *none_ends_before = hold.ends.min(*none_ends_before);
            } else {
                *taken -= hold.takes;
            }
            lasts
        });
    }

    /// The hold of this very request.
    pub(super) fn of(&self, owner: &OwnerId, request: RequestId) -> Option<&KeptHold> {
        self.kept.iter().find(|hold| hold.is_of(owner, request))
    }

    /// This very hold, by owner, request and token.
    pub(super) fn get_mut(&mut self, hold: &Hold<'_>) -> Option<&mut KeptHold> {
        self.position(hold).and_then(|at| self.kept.get_mut(at))
    }

    /// Where this very hold is.
    pub(super) fn position(&self, hold: &Hold<'_>) -> Option<usize> {
        let at = self.kept.binary_search_by_key(&hold.token, |kept| kept.token).ok()?;
        self.kept.get(at).filter(|kept| kept.is_of(hold.owner, hold.request)).map(|_| at)
    }

    /// Removes the hold at this position.
    pub(super) fn remove(&mut self, at: usize) -> KeptHold {
        let removed = self.kept.remove(at);
        self.taken -= removed.takes;
        removed
    }

    /// Removes all.
    pub(super) fn take(&mut self) -> impl Iterator<Item = KeptHold> + use<> {
        std::mem::take(self).kept.into_iter()
    }

    /// The earliest end of any; none if there is no hold.
    pub(super) fn first_end(&self) -> Option<Moment> {
        self.kept.iter().map(|hold| hold.ends).min()
    }
}
