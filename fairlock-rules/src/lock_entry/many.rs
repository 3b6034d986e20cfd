//! Many holds of a lock, by token, by request and by end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairlock_core::backend::RequestId;
use fairlock_core::{FencingToken, OwnerId};

use super::granted_hold::GrantedHold;
use crate::context::Moment;

#[derive(Default)]
pub(super) struct Many {
    kept: BTreeMap<FencingToken, GrantedHold>,
    tokens: HashMap<(OwnerId, RequestId), FencingToken>,
    ends: BTreeSet<(Moment, FencingToken)>,
}

impl Many {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &GrantedHold> {
        self.kept.values()
    }

    pub(super) fn first_to_end(&self, now: Moment, most: usize) -> (Vec<&GrantedHold>, u64) {
        // Few holds are over: each call that changes the lock drops those.
        let over = self.ends.iter().take_while(|(ends, _)| *ends <= now).count();
        let live = self.ends.iter().skip(over).take(most);
        let listed: Vec<_> = live.filter_map(|(_, token)| self.kept.get(token)).collect();
        let others = self.ends.len().saturating_sub(over + listed.len());
        (listed, others as u64)
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = GrantedHold> {
        self.kept.into_values()
    }

    pub(super) fn add(&mut self, hold: GrantedHold) {
        self.tokens.insert((hold.owner.clone(), hold.request), hold.token);
        self.ends.insert((hold.ends, hold.token));
        self.kept.insert(hold.token, hold);
    }

    pub(super) fn get(&self, token: FencingToken) -> Option<&GrantedHold> {
        self.kept.get(&token)
    }

    /// For changes other than of the hold's end.
    pub(super) fn get_mut(&mut self, token: FencingToken) -> Option<&mut GrantedHold> {
        self.kept.get_mut(&token)
    }

    pub(super) fn of(&self, owner: &OwnerId, request: RequestId) -> Option<&GrantedHold> {
        self.kept.get(self.tokens.get(&(owner.clone(), request))?)
    }

    pub(super) fn prolong(&mut self, token: FencingToken, ends: Moment) {
        if let Some(kept) = self.kept.get_mut(&token).filter(|kept| kept.ends < ends) {
            self.ends.remove(&(kept.ends, token));
            kept.ends = ends;
            self.ends.insert((ends, token));
        }
    }

    pub(super) fn hand_to(&mut self, token: FencingToken, keeper: RequestId, ends: Moment) {
        if let Some(kept) = self.remove(token) {
            self.add(GrantedHold { request: keeper, holds: 0, ends, ..kept });
        }
    }

    pub(super) fn remove(&mut self, token: FencingToken) -> Option<GrantedHold> {
        let removed = self.kept.remove(&token)?;
        self.ends.remove(&(removed.ends, token));
        self.tokens.remove(&(removed.owner.clone(), removed.request));
        Some(removed)
    }

    pub(super) fn first_end(&self) -> Option<Moment> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// A hold that is over.
    pub(super) fn first_over(&self, now: Moment) -> Option<FencingToken> {
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
        assert_eq!((many.iter().count(), many.first_end()), (4, Some(at(10))));
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
