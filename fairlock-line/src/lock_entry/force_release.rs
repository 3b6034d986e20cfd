//! Takes the lock from its holders, or from one, on an operator's order.

use fairlock_core::backend::{BackendError, ForceReleased, Hold, LockId};

use super::LockEntry;
use super::kept_hold::KeptHold;
use crate::turn::Turn;
use crate::wake_up::News;

impl LockEntry {
    /// Takes the lock from all its holders: [`Backend::force_release`](fairlock_core::backend::Backend::force_release).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind.
    pub fn force_release(
        &mut self,
        turn: &mut Turn<'_>,
        lock: &LockId,
    ) -> Result<ForceReleased, BackendError> {
        self.read(turn);
        if let Err(error) = self.check_kind(turn, lock.kind) {
            self.hand_on_if_free(turn);
            return Err(error);
        }
        Ok(self.take(turn, |_| true))
    }

    /// Takes one hold from its owner: [`Backend::take_hold`](fairlock_core::backend::Backend::take_hold).
    pub fn take_hold(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>) -> ForceReleased {
        self.read(turn);
        let token = self.holds.find(hold).map(|kept| kept.token);
        self.take(turn, |kept| Some(kept.token) == token)
    }

    /// The holds are those before the lock is handed on: one that the caller saw may have just expired, and the next holder must not
    /// pay for it.
    fn take(&mut self, turn: &mut Turn<'_>, is_taken: impl Fn(&KeptHold) -> bool) -> ForceReleased {
        let mut plan = self.new_plan(turn);
        for hold in self.holds.iter().filter(|hold| is_taken(hold)) {
            turn.tell(&hold.owner, News::Taken { token: hold.token });
            plan.drop(hold);
        }
        self.hand_on(turn, &mut plan);
        let released = if plan.drops.is_empty() { ForceReleased::NotHeld } else { ForceReleased::Taken };
        self.write(&mut plan);
        self.tell(turn, plan);
        released
    }
}
