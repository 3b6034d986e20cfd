//! The holds of a lock. Each has an owner, a number of units, and an end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use fairlock_core::backend::{Acquired, Hold, Holder, RequestId};
use fairlock_core::{FencingToken, OwnerId};

use crate::context::Moment;

/// A hold, named by owner, request and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedHold {
    /// Who has the hold.
    pub owner: OwnerId,
    /// The request that was granted.
    pub request: RequestId,
    /// Its fencing token.
    pub token: FencingToken,
    /// How many units of the lock the hold takes.
    pub units: u32,
    /// The hold count.
    pub holds: u32,
    /// When it was granted.
    pub since: Moment,
    /// When its lease ends.
    pub ends: Moment,
    /// The label that operators see; often empty.
    pub label: Arc<str>,
}

impl GrantedHold {
    pub(super) fn is_of(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.request == request && self.owner == *owner
    }

    /// The rest of the lease.
    pub(super) fn left(&self, now: Moment) -> Duration {
        self.ends.saturating_sub(now)
    }

    pub(super) fn granted(&self, now: Moment) -> Acquired {
        Acquired::Granted { token: self.token, lease: self.left(now) }
    }

    /// The holder as an operator sees it.
    pub(super) fn inspect(&self, now: Moment) -> Holder {
        let mut holder = Holder::new(self.owner.clone(), self.holds);
        holder.units = self.units;
        holder.request = Some(self.request);
        holder.token = Some(self.token);
        holder.lease_left = Some(self.left(now));
        holder.held_for = Some(now.saturating_sub(self.since));
        holder.set_label(&self.label);
        holder
    }
}

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
        self.few.iter().chain(self.many.iter().flat_map(|many| many.kept.values()))
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
            Some(many) => many.kept.get(&hold.token),
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
            Some(many) => many.kept.get_mut(&token),
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

    /// Gives the hold with this token to another owner, and makes it end at `ends`, even if that is earlier.
    pub(super) fn give_to(&mut self, token: FencingToken, owner: &OwnerId, ends: Moment) {
        if let Some(many) = &mut self.many {
            many.give_to(token, owner, ends);
        } else if let Some(kept) = self.position(token).and_then(|at| self.few.get_mut(at)) {
            (kept.owner, kept.holds, kept.ends) = (owner.clone(), 1, ends);
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
        self.many.take_if(|many| many.kept.is_empty());
        Some(removed)
    }

    /// The earliest end of all holds; none if there is no hold.
    pub(super) fn first_end(&self) -> Option<Moment> {
        match &self.many {
            Some(many) => many.first_end(),
            None => self.few.iter().map(|hold| hold.ends).min(),
        }
    }
}

/// Many holds of a lock, by token, by request and by end.
#[derive(Default)]
struct Many {
    kept: BTreeMap<FencingToken, GrantedHold>,
    tokens: HashMap<(OwnerId, RequestId), FencingToken>,
    ends: BTreeSet<(Moment, FencingToken)>,
}

impl Many {
    fn first_to_end(&self, now: Moment, most: usize) -> (Vec<&GrantedHold>, u64) {
        // Few holds are over: each call that changes the lock drops those.
        let over = self.ends.iter().take_while(|(ends, _)| *ends <= now).count();
        let live = self.ends.iter().skip(over).take(most);
        let listed: Vec<_> = live.filter_map(|(_, token)| self.kept.get(token)).collect();
        let others = self.ends.len().saturating_sub(over + listed.len());
        (listed, others as u64)
    }

    fn add(&mut self, hold: GrantedHold) {
        self.tokens.insert((hold.owner.clone(), hold.request), hold.token);
        self.ends.insert((hold.ends, hold.token));
        self.kept.insert(hold.token, hold);
    }

    fn of(&self, owner: &OwnerId, request: RequestId) -> Option<&GrantedHold> {
        self.kept.get(self.tokens.get(&(owner.clone(), request))?)
    }

    fn prolong(&mut self, token: FencingToken, ends: Moment) {
        if let Some(kept) = self.kept.get_mut(&token).filter(|kept| kept.ends < ends) {
            self.ends.remove(&(kept.ends, token));
            kept.ends = ends;
            self.ends.insert((ends, token));
        }
    }

    fn give_to(&mut self, token: FencingToken, owner: &OwnerId, ends: Moment) {
        if let Some(kept) = self.remove(token) {
            self.add(GrantedHold { owner: owner.clone(), holds: 1, ends, ..kept });
        }
    }

    fn remove(&mut self, token: FencingToken) -> Option<GrantedHold> {
        let removed = self.kept.remove(&token)?;
        self.ends.remove(&(removed.ends, token));
        self.tokens.remove(&(removed.owner.clone(), removed.request));
        Some(removed)
    }

    fn first_end(&self) -> Option<Moment> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// A hold that is over.
    fn first_over(&self, now: Moment) -> Option<FencingToken> {
        self.ends.first().filter(|(ends, _)| *ends <= now).map(|(_, token)| *token)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: u64) -> Moment {
        Duration::from_secs(second)
    }

    #[test]
    fn many_holds_are_listed_and_end_in_the_order_of_their_ends() {
        let mut many = Many::default();
        let [first, second, third, fourth] = [1, 2, 3, 4].map(FencingToken::new);
        for (token, ends) in [(first, 10), (second, 20), (third, 30), (fourth, 40)] {
            let (owner, request) = (OwnerId::new("a:1"), RequestId::new(token.get()));
            let (since, label) = (Duration::ZERO, "".into());
            many.add(GrantedHold { owner, request, token, units: 1, holds: 1, since, ends: at(ends), label });
        }
        assert_eq!((many.kept.len(), many.first_end()), (4, Some(at(10))));
        many.prolong(first, at(50));
        many.prolong(second, at(5)); // never shortened
        assert_eq!(
            (many.first_end(), many.first_over(at(19)), many.first_over(at(20))),
            (Some(at(20)), None, Some(second))
        );
        let (listed, others) = many.first_to_end(at(30), 1);
        assert_eq!((listed.iter().map(|hold| hold.token).collect::<Vec<_>>(), others), (vec![fourth], 1));
        assert_eq!(many.remove(fourth).map(|hold| hold.token), Some(fourth));
        assert_eq!(many.first_to_end(at(30), 9).0[0].ends, at(50));
    }
}
