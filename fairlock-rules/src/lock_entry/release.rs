//! Ends a hold, and grants its units to waiters; or keeps them taken for a time.

use std::time::Duration;

use fairlock_core::backend::{Hold, HoldCountSet, HoldKept, Released, RequestId};

use super::LockEntry;
use crate::context::OperationContext;
use crate::wake_up::WakeUpKind;

impl LockEntry {
    /// Gives a hold up, and hands the lock on: [`Backend::release`](fairlock_core::backend::Backend::release).
    pub fn release(&mut self, context: &mut OperationContext<'_>, hold: &Hold<'_>) -> Released {
        self.read(context);
        let in_queue = self.queue.ticket_of(hold.owner, hold.request);
        if self.holds.find(hold).is_none() && in_queue.is_none() {
            self.hand_on_if_free(context);
            return Released::NotHeld;
        }
        let mut plan = self.new_plan(context);
        let held = self.holds.find(hold);
        if let Some(held) = held {
            plan.drop(held);
        } else if let Some(ticket) = in_queue {
            // A late repeat of the `acquire` has made a place after the hold ended: a release ends the request, whatever its state.
            self.queue.remove(ticket);
        }
        self.hand_on(context, &mut plan);
        let released = if plan.drops.is_empty() { Released::NotHeld } else { Released::Released };
        self.write(&mut plan);
        self.tell(context, plan);
        released
    }

    /// Sets the hold count: [`Backend::set_hold_count`](fairlock_core::backend::Backend::set_hold_count).
    pub fn set_hold_count(
        &mut self,
        context: &mut OperationContext<'_>,
        hold: &Hold<'_>,
        holds: u32,
    ) -> HoldCountSet {
        self.read(context);
        let found = self.holds.find(hold).map(|kept| kept.token);
        let set = found.map(|token| self.holds.set_count(token, holds));
        self.hand_on_if_free(context);
        set.map_or(HoldCountSet::Lost, |()| HoldCountSet::Set)
    }

    /// Gives a hold up, and keeps its units taken for this lease: [`Backend::keep`](fairlock_core::backend::Backend::keep). Waiters
    /// were told to look at a later end, and are told to look again.
    pub fn keep(
        &mut self,
        context: &mut OperationContext<'_>,
        hold: &Hold<'_>,
        keeper: RequestId,
        lease: Duration,
    ) -> HoldKept {
        self.read(context);
        let mut ends = context.now.saturating_add(lease);
        let kept = self.holds.of(hold.owner, keeper).filter(|kept| kept.token == hold.token);
        if let Some(kept) = kept {
            ends = ends.min(kept.ends);
        }
        let Some(token) = kept.or_else(|| self.holds.find(hold)).map(|kept| kept.token) else {
            return HoldKept::NotHeld;
        };
        self.holds.hand_to(token, keeper, ends);
        if let Some((_, first)) = self.queue.places().next() {
            context.tell(&first.owner, WakeUpKind::Recheck);
        }
        self.wake_plain(context);
        HoldKept::Kept
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::{Acquire, Acquired, LockId, Place};
    use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};

    use super::*;
    use crate::context::{Presence, StoreContext};

    #[test]
    fn a_keep_may_be_repeated_and_is_of_this_hold_only() {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
        let (owner, request) = (OwnerId::new("a:1"), RequestId::new(1));
        let (mut entry, mut store_context, lease) =
            (LockEntry::default(), StoreContext::default(), Duration::from_secs(30));
        let mut context = store_context.operation(&lock.name, Duration::from_secs(1), &|_| Presence::Present);
        let ask = Acquire::new(Place::new(&lock, &owner, request), lease);
        let Acquired::Granted { token, .. } = entry.acquire(&mut context, &ask).unwrap() else { panic!() };
        let mut keep = |token| {
            let hold = Hold::new(&lock, &owner, request, token);
            entry.keep(&mut context, &hold, RequestId::new(7), lease)
        };
        let later = FencingToken::new(token.get() + 1);
        assert_eq!(keep(token), HoldKept::Kept);
        assert_eq!([keep(token), keep(later)], [HoldKept::Kept, HoldKept::NotHeld]);
    }
}
