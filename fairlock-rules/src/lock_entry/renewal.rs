//! Heartbeats of holds and places: all items of a call are heard before any is answered.

use fairlock_core::backend::{LockId, Renew, Renewal};
use fairlock_core::{LockKind, LockName};

use super::LockEntry;
use crate::context::OperationContext;
use crate::queue::Heartbeat;

/// The answers to items of many locks: `renew` gets all items of one lock at once, lock by lock.
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
    /// the first in the queue of *all* waiters of this call, whatever the order of the items.
    pub fn renew(&mut self, context: &mut OperationContext<'_>, items: &[Renew<'_>]) -> Vec<Renewal> {
        self.read(context);
        // A holder's renewal hands nothing on: the heartbeats of waiters do.
        let of_waiters = items.iter().filter_map(|item| match item {
            Renew::Place { place, .. } => Some(place),
            Renew::Hold { .. } => None,
        });
        let of_waiter = of_waiters.max_by_key(|place| place.lock.kind.capacity());
        let mut plan = of_waiter.map(|place| self.new_plan(context, place.lock.kind));
        items.iter().for_each(|item| self.hear(context, item));
        if let Some(mut plan) = plan.take() {
            self.hand_on(context, &mut plan);
            self.write(&mut plan);
            self.tell(context, plan);
        }
        let first = items.iter().filter_map(|item| self.waits_at(item)).min();
        items.iter().map(|item| self.answer(context, item, first)).collect()
    }

    /// Hears the item. A heartbeat puts no place back: it may arrive after the request's end. If the request still waits, its client
    /// asks again, and names the ticket.
    fn hear(&mut self, context: &OperationContext<'_>, item: &Renew<'_>) {
        match item {
            Renew::Hold { hold, holds, lease } => {
                if let Some(token) = self.holds.find(hold).map(|kept| kept.token) {
                    // Never shorter: an earlier renewal may arrive later.
                    self.holds.prolong(token, context.now.saturating_add(*lease));
                    self.holds.set_count(token, *holds);
                }
            }
            Renew::Place { place, .. } if !self.may_grant(place) => {}
            Renew::Place { place, .. } if place.lock.kind == LockKind::Plain => {
                self.interest.refresh(place, context.now);
            }
            Renew::Place { place, lease } => {
                if self.waits_at(item).is_some() {
                    self.queue.hear(Heartbeat { place, lease: *lease, label: None, call: context.call });
                }
            }
        }
    }

    /// The ticket of the waiter that this heartbeat is for. None if the heartbeat names another ticket: an operator has moved the
    /// waiter, which then asks to learn its new ticket. Also none if the heartbeat and the place name different numbers of permits.
    fn waits_at(&self, item: &Renew<'_>) -> Option<u64> {
        let Renew::Place { place, .. } = item else { return None };
        let ticket = self.queue.ticket_of(place.owner, place.request, place.ticket)?;
        let is_its_own = place.ticket == 0 || place.ticket == ticket;
        let is_of = self.queue.is_of(ticket, place.lock.kind.capacity());
        (is_its_own && is_of && self.may_grant(place)).then_some(ticket)
    }

    /// The answer to the item, after all items were heard. `first`: the first ticket of all waiters in the call.
    fn answer(&mut self, context: &OperationContext<'_>, item: &Renew<'_>, first: Option<u64>) -> Renewal {
        let place = match item {
            Renew::Hold { hold, .. } => {
                return self.holds.find(hold).map_or(Renewal::Lost, |_| Renewal::Renewed);
            }
            Renew::Place { place, .. } => place,
        };
        if let Some(hold) = self.holds.of(place.owner, place.request) {
            let (token, lease) = (hold.token, hold.left(context.now));
            self.interest.remove(place.owner, place.request);
            return Renewal::Granted { token, lease };
        }
        if place.lock.kind == LockKind::Plain && self.interest.has(place) {
            return Renewal::Waiting { rank: 0, recheck_in: self.busy_for(context.now), latest: 0 };
        }
        let Some(ticket) = self.waits_at(item) else { return Renewal::Lost };
        let rank = self.queue.rank_of(ticket);
        let recheck_in = self.look_in(context.now, rank, place, Some(ticket) == first);
        Renewal::Waiting { rank, recheck_in, latest: context.last_number() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock_core::OwnerId;
    use fairlock_core::backend::{Place, RequestId};

    use super::*;

    /// Each lock is asked once, and the answers stand as the items do.
    #[test]
    fn each_lock_is_asked_once_and_answers_keep_their_places() {
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
