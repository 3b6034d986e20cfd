//! Carries out a plan, and tells the owners concerned. `lib/write.lua` of the Redis backend is the same.

use super::LockEntry;
use super::plan::Plan;
use crate::context::OperationContext;
use crate::wake_up::WakeUpKind;

impl LockEntry {
    pub(super) fn write(&mut self, plan: &mut Plan) {
        for token in &plan.drops {
            self.holds.remove(*token);
        }
        for ticket in plan.leaves.drain(..) {
            self.queue.remove(ticket);
        }
        self.queue.serve(plan.served);
        for hold in plan.grants.drain(..) {
            self.interest.remove(&hold.owner, hold.request);
            self.holds.add(hold);
        }
        if let Some((ticket, place)) = plan.joins.take() {
            self.queue.insert(ticket, place);
        }
    }

    /// Sends the messages, after all writes, since nothing depends on a message. Units that stay free after a hold has ended go to no
    /// waiter of the queue: so waiters for plain locks are told.
    pub(super) fn tell(&mut self, context: &mut OperationContext<'_>, plan: Plan) {
        for (owner, kind) in plan.wake_ups {
            context.tell(&owner, kind);
        }
        if !plan.drops.is_empty() && self.free() > 0 {
            self.wake_plain(context);
        }
    }

    /// Tells the waiters for a plain lock to look.
    pub(super) fn wake_plain(&mut self, context: &mut OperationContext<'_>) {
        if self.interest.is_empty() {
            return;
        }
        for owner in self.interest.one_of_each_client(context.now) {
            context.tell(&owner, WakeUpKind::RecheckAny);
        }
    }

    /// Hands on what may be free, in an operation that changes nothing else of the queue.
    pub(super) fn hand_on_if_free(&mut self, context: &mut OperationContext<'_>) {
        if self.queue.is_empty() || self.free() == 0 {
            return;
        }
        let mut plan = self.new_plan(context);
        self.hand_on(context, &mut plan);
        self.write(&mut plan);
        self.tell(context, plan);
    }
}
