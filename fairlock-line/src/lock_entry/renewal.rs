//! Heartbeats of holds and places, in two halves: all items of a call are refreshed before any is answered.

use fairlock_core::backend::{LockId, Renew, Renewal};
use fairlock_core::{LockKind, LockName};

use super::LockEntry;
use crate::line::Heartbeat;
use crate::turn::Turn;

/// The answers to items of many locks: `renew` is asked lock by lock, with all items of it.
pub fn renew_by_lock<'a, A>(
    items: &[Renew<'a>],
    mut renew: impl FnMut(&'a LockName, &[Renew<'a>]) -> Vec<A>,
) -> Vec<A> {
    let name_of = |at: usize| &lock_of(&items[at]).name;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_cached_key(|&at| (name_of(at).hash_code(), name_of(at)));
    let sorted: Vec<_> = order.iter().map(|&at| items[at]).collect();
    let by_lock = sorted.chunk_by(|one, other| lock_of(one).name == lock_of(other).name);
    let renewed = by_lock.flat_map(|items| renew(&lock_of(&items[0]).name, items));
    let mut answers: Vec<_> = order.iter().zip(renewed).collect();
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The lock that this item is about.
pub fn lock_of<'a>(item: &Renew<'a>) -> &'a LockId {
    match item {
        Renew::Hold { hold, .. } => hold.lock,
        Renew::Place { place, .. } => place.lock,
    }
}

impl LockEntry {
    /// Keeps holds and places of this lock alive: [`Backend::renew`](fairlock_core::backend::Backend::renew). A free lock goes to
    /// the first in line of *all* waiters of this call, whatever the order of the items.
    pub fn renew(&mut self, turn: &mut Turn<'_>, items: &[Renew<'_>]) -> Vec<Renewal> {
        self.begin(turn);
        items.iter().for_each(|item| self.refresh(turn, item));
        items.iter().map(|item| self.answer(turn, item)).collect()
    }

    /// The first half: the item was heard.
    fn refresh(&mut self, turn: &mut Turn<'_>, item: &Renew<'_>) {
        match item {
            Renew::Hold { hold, holds, lease } => {
                if let Some(token) = self.holds.find(hold) {
                    // Never shorter: an earlier renewal may arrive later.
                    self.holds.prolong(token, turn.now.saturating_add(*lease));
                    self.holds.set_count(token, *holds);
                }
            }
            // The name is another lock by now, so the place is gone. If the request still waits it asks, and hears why.
            Renew::Place { place, .. } if self.check_place(turn, place).is_err() => {}
            Renew::Place { place, .. } if place.lock.kind == LockKind::Plain => {
                self.interest.refresh(place, turn.now);
            }
            Renew::Place { place, lease } => {
                self.pulse(turn.now);
                let heartbeat = Heartbeat { place, lease: *lease, label: None, call: turn.call };
                // A heartbeat restores only a place that was lost: it may have crossed the release of the hold that the place
                // became, or the request's withdrawal. If the request still waits, its client asks again.
                if !self.line.refresh(heartbeat, turn.now)
                    && self.holds.of(place.owner, place.request).is_none()
                    && self.line.was_lost(place)
                {
                    self.restore(turn, heartbeat);
                }
            }
        }
    }

    /// The second half: the state of the item, after all were heard.
    fn answer(&mut self, turn: &mut Turn<'_>, item: &Renew<'_>) -> Renewal {
        let place = match item {
            Renew::Hold { hold, .. } => {
                // A holder hands nothing on: waiters have their own heartbeats, which do.
                return self.holds.find(hold).map_or(Renewal::Lost, |_| Renewal::Renewed);
            }
            Renew::Place { place, .. } => place,
        };
        self.pulse_and_hand_on(turn);
        self.line.sweep(turn.call);
        if let Some(hold) = self.holds.of(place.owner, place.request) {
            let (token, lease) = (hold.token, hold.left(turn.now));
            self.interest.remove(place.owner, place.request);
            return Renewal::Granted { token, lease };
        }
        match place.lock.kind {
            LockKind::Plain if self.interest.has(place) => {
                Renewal::Waiting { rank: 0, recheck_in: self.lease_left(turn.now), latest: 0 }
            }
            _ if self.line.rank_of(place.owner, place.request).is_none() => Renewal::Lost,
            _ => {
                let (rank, recheck_in) = self.rank_and_recheck_in(turn, place);
                Renewal::Waiting { rank, recheck_in, latest: turn.last_number() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock_core::OwnerId;
    use fairlock_core::backend::{Place, RequestId};

    use super::*;

    #[test]
    fn each_lock_is_asked_once_and_the_answers_stand_as_the_items_do() {
        let name = |number| LockName::new(&format!("lock:{number}")).unwrap();
        let locks: Vec<_> = (0..7).map(|number| LockId::new(name(number), LockKind::Fair)).collect();
        let (owner, lease) = (OwnerId::new("c:1"), Duration::ZERO);
        let place = |number: usize| Place::new(&locks[number % 7], &owner, RequestId::new(number as u64));
        let items: Vec<_> = (0..50).map(|number| Renew::Place { place: place(number), lease }).collect();
        let mut asked = Vec::new();
        let answers = renew_by_lock(&items, |lock, items| {
            asked.push(lock.clone());
            let request = |item: &Renew<'_>| match item {
                Renew::Place { place, .. } if place.lock.name == *lock => place.request.get(),
                _ => u64::MAX,
            };
            let requests: Vec<_> = items.iter().map(request).collect();
            assert!(requests.is_sorted(), "{requests:?}");
            requests
        });
        assert_eq!(answers, (0..50).collect::<Vec<_>>());
        asked.sort();
        assert_eq!(asked, (0..7).map(name).collect::<Vec<_>>());
    }
}
