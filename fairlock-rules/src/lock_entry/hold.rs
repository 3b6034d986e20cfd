//! The holds of a lock. Each has an owner, a number of units, and an end.

use smallvec::SmallVec;

use fairlock_core::backend::{Hold, RequestId};
use fairlock_core::{FencingToken, OwnerId};

use super::granted_hold::GrantedHold;
use super::many::Many;
use crate::context::Moment;

/// With more holds than this they are indexed.
pub(super) const FEW: usize = 64;

/// All holds of a lock, in the order of their tokens. The one hold of an exclusive lock allocates nothing. Few holds are
/// searched in turn; many are indexed, so that no call takes longer with more holds.
#[derive(Default)]
pub(super) struct Holds {
    few: SmallVec<[GrantedHold; 1]>,
    /// All holds, from when there were more than a few until the last hold ends.
    many: Option<Box<Many>>,
    /// The units that they take together.
    taken: u32,
    /// No hold of the few ends before this moment, so most calls need not look for ended holds.
    none_ends_before: Moment,
}

impl Holds {
    pub(super) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &GrantedHold> {
        self.few.iter().chain(self.many.iter().flat_map(|many| many.iter()))
    }

    /// The live holds that end first, at most this many, and the number of the others.
    pub(super) fn first_to_end(&self, now: Moment, most: usize) -> (Vec<&GrantedHold>, u64) {
        match &self.many {
            Some(many) => many.first_to_end(now, most),
            None => (self.few.iter().filter(|hold| now < hold.ends).collect(), 0),
        }
    }

    /// Adds a hold. Its token is greater than all before, and its units are free.
    pub(super) fn add(&mut self, hold: GrantedHold) {
        self.taken += hold.units;
        if let Some(many) = &mut self.many {
            many.add(hold);
            return;
        }
        self.none_ends_before = self.none_ends_before.min(hold.ends);
        self.few.push(hold);
        if self.few.len() > FEW {
            let many = self.many.get_or_insert_default();
            self.few.drain(..).for_each(|hold| many.add(hold));
        }
    }

    /// Drops the holds whose leases have ended.
    pub(super) fn drop_over(&mut self, now: Moment) {
        while let Some(over) = self.many.as_ref().and_then(|many| many.first_over(now)) {
            self.remove(over);
        }
        if now >= self.none_ends_before {
            self.look_for_ends(now);
        }
    }

    fn look_for_ends(&mut self, now: Moment) {
        let Holds { few, taken, none_ends_before, .. } = self;
        *none_ends_before = Moment::MAX;
        few.retain(|hold| {
            let lasts = now < hold.ends;
            if lasts {
                *none_ends_before = hold.ends.min(*none_ends_before);
            } else {
                *taken -= hold.units;
            }
            lasts
        });
    }

    /// The hold of this very request.
    pub(super) fn of(&self, owner: &OwnerId, request: RequestId) -> Option<&GrantedHold> {
        match &self.many {
            Some(many) => many.of(owner, request),
            None => self.few.iter().find(|hold| hold.is_of(owner, request)),
        }
    }

    /// The hold with this owner, request and token; none if that hold is over.
    pub(super) fn find(&self, hold: &Hold<'_>) -> Option<&GrantedHold> {
        let kept = match &self.many {
            Some(many) => many.get(hold.token),
            None => self.few.get(self.position(hold.token)?),
        };
        kept.filter(|kept| kept.is_of(hold.owner, hold.request))
    }

    fn position(&self, token: FencingToken) -> Option<usize> {
        self.few.binary_search_by_key(&token, |kept| kept.token).ok()
    }

    /// Sets the count of the hold with this token.
    pub(super) fn set_count(&mut self, token: FencingToken, count: u32) {
        let kept = match &mut self.many {
            Some(many) => many.get_mut(token),
            None => self.position(token).and_then(|at| self.few.get_mut(at)),
        };
        if let Some(kept) = kept {
            kept.holds = count;
        }
    }

    /// Makes the hold with this token end no earlier than `ends`.
    pub(super) fn prolong(&mut self, token: FencingToken, ends: Moment) {
        if let Some(many) = &mut self.many {
            many.prolong(token, ends);
        } else if let Some(kept) = self.position(token).and_then(|at| self.few.get_mut(at)) {
            kept.ends = kept.ends.max(ends);
        }
    }

    /// Gives the hold with this token to another request, and makes it end at `ends`, even if that is earlier.
    pub(super) fn hand_to(&mut self, token: FencingToken, keeper: RequestId, ends: Moment) {
        let kept = match &mut self.many {
            Some(many) => return many.hand_to(token, keeper, ends),
            None => self.position(token).and_then(|at| self.few.get_mut(at)),
        };
        if let Some(kept) = kept {
            (kept.request, kept.holds, kept.ends) = (keeper, 0, ends);
            self.none_ends_before = self.none_ends_before.min(ends);
        }
    }

    /// Removes the hold with this token.
    pub(super) fn remove(&mut self, token: FencingToken) -> Option<GrantedHold> {
        let removed = match &mut self.many {
            Some(many) => many.remove(token),
            None => self.position(token).map(|at| self.few.remove(at)),
        }?;
        self.taken -= removed.units;
        self.many.take_if(|many| many.is_empty());
        Some(removed)
    }

    /// Removes all.
    pub(super) fn take(&mut self) -> impl Iterator<Item = GrantedHold> + use<> {
        let Holds { few, many, .. } = std::mem::take(self);
        few.into_iter().chain(many.into_iter().flat_map(|many| many.into_all()))
    }

    /// The earliest end of all holds; none if there is no hold.
    pub(super) fn first_end(&self) -> Option<Moment> {
        match &self.many {
            Some(many) => many.first_end(),
            None => self.few.iter().map(|hold| hold.ends).min(),
        }
    }
}
