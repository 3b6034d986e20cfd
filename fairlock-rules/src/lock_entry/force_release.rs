//! Takes the lock from its holders, or from one, on an operator's order.

use fairlock_core::backend::{BackendError, ForceReleased, Hold, LockId};

use super::LockEntry;
use super::granted_hold::GrantedHold;
use crate::context::OperationContext;
use crate::wake_up::WakeUpKind;

impl LockEntry {
    /// Takes the lock from all its holders: [`Backend::force_release`](fairlock_core::backend::Backend::force_release).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind.
    pub fn force_release(
        &mut self,
        context: &mut OperationContext<'_>,
        lock: &LockId,
    ) -> Result<ForceReleased, BackendError> {
        self.read(context);
        if let Err(error) = self.check_kind(context, lock.kind) {
            self.hand_on_if_free(context);
            return Err(error);
        }
        Ok(self.take(context, |_| true))
    }

    /// Takes one hold from its owner: [`Backend::take_hold`](fairlock_core::backend::Backend::take_hold).
    pub fn take_hold(&mut self, context: &mut OperationContext<'_>, hold: &Hold<'_>) -> ForceReleased {
        self.read(context);
        let token = self.holds.find(hold).map(|kept| kept.token);
        self.take(context, |kept| Some(kept.token) == token)
    }

    /// The holds are those before the lock is handed on: one that the caller saw may have just expired, and the next holder must not
    /// pay for it.
    fn take(
        &mut self,
        context: &mut OperationContext<'_>,
        is_taken: impl Fn(&GrantedHold) -> bool,
    ) -> ForceReleased {
        let mut plan = self.new_plan(context);
        for hold in self.holds.iter().filter(|hold| is_taken(hold)) {
            context.tell(&hold.owner, WakeUpKind::Taken { token: hold.token });
            plan.drop(hold);
        }
        self.hand_on(context, &mut plan);
        let released = if plan.drops.is_empty() { ForceReleased::NotHeld } else { ForceReleased::Taken };
        self.write(&mut plan);
        self.tell(context, plan);
        released
    }
}
