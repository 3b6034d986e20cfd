//! Ends a hold, and grants its units to waiters; or keeps them taken for a time.

use std::time::Duration;

use fairlock_core::backend::{Hold, HoldCountSet, HoldKept, Released, RequestId};

use super::LockEntry;
use crate::turn::Turn;
use crate::wake_up::News;

impl LockEntry {
    /// Gives a hold up, and hands the lock on: [`Backend::release`](fairlock_core::backend::Backend::release).
    pub fn release(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>) -> Released {
        self.read(turn);
        let in_queue = self.queue.ticket_of(hold.owner, hold.request);
        if self.holds.find(hold).is_none() && in_queue.is_none() {
            self.hand_on_if_free(turn);
            return Released::NotHeld;
        }
        let mut plan = self.new_plan(turn);
        let held = self.holds.find(hold);
        if let Some(held) = held {
            plan.drop(held);
        } else if let Some(ticket) = in_queue {
            // A late repeat of its acquire has come here after the hold ended: a release ends the request, whatever its state.
            self.queue.remove(ticket);
        }
        self.hand_on(turn, &mut plan);
        let released = if plan.drops.is_empty() { Released::NotHeld } else { Released::Released };
        self.write(&mut plan);
        self.tell(turn, plan);
        released
    }

    /// Sets the hold count: [`Backend::set_hold_count`](fairlock_core::backend::Backend::set_hold_count).
    pub fn set_hold_count(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>, holds: u32) -> HoldCountSet {
        self.read(turn);
        let found = self.holds.find(hold).map(|kept| kept.token);
        let set = found.map(|token| self.holds.set_count(token, holds));
        self.hand_on_if_free(turn);
        set.map_or(HoldCountSet::Lost, |()| HoldCountSet::Set)
    }

    /// Gives a hold up, and keeps its units taken for this lease: [`Backend::keep`](fairlock_core::backend::Backend::keep). Waiters
    /// were told to look at a later end, and are told to look again.
    pub fn keep(
        &mut self,
        turn: &mut Turn<'_>,
        hold: &Hold<'_>,
        keeper: RequestId,
        lease: Duration,
    ) -> HoldKept {
        self.read(turn);
        let mut ends = turn.now.saturating_add(lease);
        let kept = self.holds.of(hold.owner, keeper).filter(|kept| kept.token == hold.token);
        if let Some(kept) = kept {
            ends = ends.min(kept.ends);
        }
        let Some(token) = kept.or_else(|| self.holds.find(hold)).map(|kept| kept.token) else {
            return HoldKept::NotHeld;
        };
        self.holds.hand_to(token, keeper, ends);
        if let Some((_, first)) = self.queue.places().next() {
            turn.tell(&first.owner, News::Recheck);
        }
        self.wake_plain(turn);
        HoldKept::Kept
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::{Acquire, Acquired, LockId, Place};
    use fairlock_core::{FencingToken, LockKind, LockName, OwnerId};

    use super::*;
    use crate::turn::Desk;

    #[test]
    fn a_keep_may_be_repeated_and_is_of_this_hold_only() {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
        let (owner, request) = (OwnerId::new("a:1"), RequestId::new(1));
        let (mut entry, mut desk, lease) = (LockEntry::default(), Desk::default(), Duration::from_secs(30));
        let mut turn = desk.turn(&lock.name, Duration::from_secs(1), &|_| true);
        let ask = Acquire::new(Place::new(&lock, &owner, request), lease);
        let Acquired::Granted { token, .. } = entry.acquire(&mut turn, &ask).unwrap() else { panic!() };
        let mut keep = |token| {
            let hold = Hold::new(&lock, &owner, request, token);
            entry.keep(&mut turn, &hold, RequestId::new(7), lease)
        };
        let later = FencingToken::new(token.get() + 1);
        assert_eq!(keep(token), HoldKept::Kept);
        assert_eq!([keep(token), keep(later)], [HoldKept::Kept, HoldKept::NotHeld]);
    }
}
