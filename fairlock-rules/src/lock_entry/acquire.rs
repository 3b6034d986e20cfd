//! Takes units of the lock, or a place in the queue.

use std::time::Duration;

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquire, Acquired, BackendError, Place, Wait};

use super::LockEntry;
use crate::context::OperationContext;
use crate::queue::Heartbeat;
use crate::wrong::Wrong;

impl LockEntry {
    /// Takes the lock, or a place in its queue: [`Backend::acquire`](fairlock_core::backend::Backend::acquire).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind; `InvalidConfig` for more units than the lock has.
    pub fn acquire(
        &mut self,
        context: &mut OperationContext<'_>,
        ask: &Acquire<'_>,
    ) -> Result<Acquired, BackendError> {
        self.read(context);
        if let Err(error) = self.check_place(context, &ask.place) {
            self.hand_on_if_free(context);
            return Err(error);
        }
        let Place { lock, owner, request, wait, units, ttl, ticket: named, .. } = ask.place;
        // A repeat. A hold of this owner under another request does not matter: nobody can know which of the two requests is late.
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(context.now));
        }
        let queues = wait != Wait::No && lock.kind != LockKind::Plain;
        let own = self.queue.ticket_of(owner, request);
        if own.is_none() && !queues && (self.free() == 0 || self.queue.is_empty() && units > self.free()) {
            return Ok(self.busy(context, ask));
        }

        let mut plan = self.new_plan(context);
        let heartbeat =
            Heartbeat { place: &ask.place, lease: ask.lease, label: Some(ask.label), call: context.call };
        if own.is_some() {
            self.queue.hear(heartbeat);
            plan.impatient = own.filter(|_| !queues);
        } else {
            self.queue.count_ttl(ttl);
            if queues && context.may_have_drawn(named) && self.queue.is_free(named) {
                return Ok(self.restore(context, heartbeat));
            }
        }
        if own.is_some() || !context.is(Wrong::NewcomerBarges) {
            self.hand_on(context, &mut plan);
        }

        // A newcomer gets its units if they are free and no waiter is ahead.
        let is_granted = plan.grants.iter().any(|hold| hold.is_of(owner, request));
        if own.is_none() {
            let place = self.queue.new_place(heartbeat, context.label(ask.label), context.now);
            if !plan.blocked && units <= self.kind.capacity().saturating_sub(plan.used) {
                plan.grant(context, &place, ask.lease);
            } else if queues {
                plan.join(context, place);
            }
        } else if !queues && !is_granted {
            plan.leaves.extend(own);
        }
        self.write(&mut plan);
        self.tell(context, plan);
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(context.now));
        }
        Ok(if queues { self.queued(context, &ask.place) } else { self.busy(context, ask) })
    }

    /// Puts a waiter back at its named ticket. The number drawn here is later than any grant of the former place, and so tells
    /// which messages are old. Nothing is handed on: the waiter stands in the queue now, and looks itself.
    fn restore(&mut self, context: &mut OperationContext<'_>, heartbeat: Heartbeat<'_>) -> Acquired {
        let Place { ticket, ttl, .. } = *heartbeat.place;
        let latest = context.next_number();
        self.queue.rest_if_lost(ticket, ttl, latest);
        let label = context.label(heartbeat.label.unwrap_or_default());
        let mut place = self.queue.new_place(heartbeat, label, context.now);
        place.is_heard = true;
        self.queue.insert(ticket, place);
        let rank = self.queue.rank_of(ticket);
        Acquired::Queued { rank, recheck_in: self.restored_looks_in(context.now, rank, ttl), ticket, latest }
    }

    fn queued(&self, context: &OperationContext<'_>, place: &Place<'_>) -> Acquired {
        let ticket = self.queue.ticket_of(place.owner, place.request).unwrap_or(0);
        let rank = self.queue.rank_of(ticket);
        let recheck_in = self.look_in(context.now, rank, place.ttl, true);
        Acquired::Queued { rank, recheck_in, ticket, latest: context.last_number() }
    }

    /// The answer to a request that does not stand in the queue. The request may wait for a plain lock.
    fn busy(&mut self, context: &OperationContext<'_>, ask: &Acquire<'_>) -> Acquired {
        let mut rests_for = Duration::ZERO;
        if ask.place.wait == Wait::No {
            self.interest.remove(ask.place.owner, ask.place.request);
        } else {
            self.interest.refresh(&ask.place, context.now);
            rests_for = self.rests_for(context.now); // or it would ask without a pause
        }
        Acquired::Busy { recheck_in: self.busy_for(context.now).max(rests_for) }
    }
}
