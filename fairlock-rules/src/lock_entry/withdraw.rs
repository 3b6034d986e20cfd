//! Leaves the queue. On an operator's order a waiter goes to the tail.

use fairlock_core::backend::{Place, Withdrawn};

use super::LockEntry;
use crate::context::OperationContext;
use crate::wake_up::WakeUpKind;

impl LockEntry {
    /// Takes a request out of the queue: [`Backend::withdraw`](fairlock_core::backend::Backend::withdraw).
    pub fn withdraw(&mut self, context: &mut OperationContext<'_>, place: &Place<'_>) -> Withdrawn {
        self.take_out(context, place, false)
    }

    /// Moves a request to the tail: [`Backend::kick`](fairlock_core::backend::Backend::kick). Its client is told to look, and
    /// learns the new ticket; until then the place counts as unheard.
    pub fn kick(&mut self, context: &mut OperationContext<'_>, place: &Place<'_>) -> Withdrawn {
        self.take_out(context, place, true)
    }

    fn take_out(
        &mut self,
        context: &mut OperationContext<'_>,
        place: &Place<'_>,
        is_kick: bool,
    ) -> Withdrawn {
        self.read(context);
        if let Some(hold) = self.holds.of(place.owner, place.request) {
            return Withdrawn::WasGranted { token: hold.token, lease: hold.left(context.now) };
        }
        self.interest.remove(place.owner, place.request);
        if self.queue.is_empty() {
            return Withdrawn::Left;
        }
        let mut plan = self.new_plan(context);
        // Removed before the lock is handed on: a free unit must not go to the leaving request. If that request was the first and
        // did not fit, others may fit now.
        let own =
            self.queue.ticket_of(place.owner, place.request).and_then(|ticket| self.queue.remove(ticket));
        self.hand_on(context, &mut plan);
        if let Some(kicked) = own.filter(|_| is_kick) {
            plan.wake_ups.push((kicked.owner.clone(), WakeUpKind::Recheck));
            plan.join(context, kicked);
        }
        self.write(&mut plan);
        self.tell(context, plan);
        Withdrawn::Left
    }
}
