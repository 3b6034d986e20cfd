//! Takes units of the lock, or a place in the queue.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquire, Acquired, BackendError, Place, Wait};

use super::LockEntry;
use crate::queue::Heartbeat;
use crate::turn::Turn;
use crate::wrong::Wrong;

impl LockEntry {
    /// Takes the lock, or a place in its queue: [`Backend::acquire`](fairlock_core::backend::Backend::acquire).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind; `InvalidConfig` for more units than the lock has.
    pub fn acquire(&mut self, turn: &mut Turn<'_>, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        self.read(turn);
        if let Err(error) = self.check_place(turn, &ask.place) {
            self.hand_on_if_free(turn);
            return Err(error);
        }
        let Place { lock, owner, request, wait, takes, ttl, ticket: named, .. } = ask.place;
        // A repeat. A hold of this owner under another request does not matter: which of the two is the late one can't be known.
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(turn.now));
        }
        let queues = wait != Wait::No && lock.kind != LockKind::Plain;
        let own = self.queue.ticket_of(owner, request);
        if own.is_none() && !queues && (self.free() == 0 || self.queue.is_empty() && takes > self.free()) {
            return Ok(self.busy(turn, ask));
        }

        let mut plan = self.new_plan(turn);
        let heartbeat =
            Heartbeat { place: &ask.place, lease: ask.lease, label: Some(ask.label), call: turn.call };
        if own.is_some() {
            self.queue.hear(heartbeat);
            plan.impatient = own.filter(|_| !queues);
        } else {
            self.queue.count_ttl(ttl);
            if queues && turn.may_have_drawn(named) && self.queue.is_free(named) {
                return Ok(self.restore(turn, heartbeat));
            }
        }
        if own.is_some() || !turn.is(Wrong::NewcomerBarges) {
            self.hand_on(turn, &mut plan);
        }

        // A newcomer gets its units if no waiter is ahead of it, and they are free.
        let is_granted = plan.grants.iter().any(|hold| hold.is_of(owner, request));
        if own.is_none() {
            let place = self.queue.new_place(heartbeat, turn.label(ask.label), turn.now);
            if !plan.blocked && takes <= self.kind.capacity().saturating_sub(plan.used) {
                plan.grant(turn, &place, ask.lease);
            } else if queues {
                plan.join(turn, place);
            }
        } else if !queues && !is_granted {
            plan.leaves.extend(own);
        }
        self.write(&mut plan);
        self.tell(turn, plan);
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(turn.now));
        }
        Ok(if queues { self.queued(turn, &ask.place) } else { self.busy(turn, ask) })
    }

    /// Puts a waiter back at its named ticket. The number drawn here is later than any grant of the former place, and so tells
    /// which messages are old. Nothing is handed on: the waiter stands in the queue now, and looks itself.
    fn restore(&mut self, turn: &mut Turn<'_>, heartbeat: Heartbeat<'_>) -> Acquired {
        let Place { ticket, ttl, .. } = *heartbeat.place;
        let latest = turn.next_number();
        self.queue.rest_if_lost(ticket, ttl, latest);
        let label = turn.label(heartbeat.label.unwrap_or_default());
        let mut place = self.queue.new_place(heartbeat, label, turn.now);
        place.is_heard = true;
        self.queue.insert(ticket, place);
        let rank = self.queue.rank_of(ticket);
        Acquired::Queued { rank, recheck_in: self.restored_looks_in(turn.now, rank, ttl), ticket, latest }
    }

    fn queued(&self, turn: &Turn<'_>, place: &Place<'_>) -> Acquired {
        let ticket = self.queue.ticket_of(place.owner, place.request).unwrap_or(0);
        let rank = self.queue.rank_of(ticket);
        let recheck_in = self.look_in(turn.now, rank, place.ttl, true);
        Acquired::Queued { rank, recheck_in, ticket, latest: turn.last_number() }
    }

    /// One that does not stand in the queue. It may wait for a plain lock.
    fn busy(&mut self, turn: &Turn<'_>, ask: &Acquire<'_>) -> Acquired {
        let mut rests_for = Duration::ZERO;
        if ask.place.wait == Wait::No {
            self.interest.remove(ask.place.owner, ask.place.request);
        } else {
            self.interest.refresh(&ask.place, turn.now);
            rests_for = self.rests_for(turn.now); // or it would ask without a pause
        }
        Acquired::Busy { recheck_in: self.busy_for(turn.now).max(rests_for) }
    }
}
