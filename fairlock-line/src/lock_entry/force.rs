//! What operators do: take holds away, and remove waiters.

use fairlock_core::backend::{BackendError, ForceReleased, Hold, LockId, Place, Withdrawn};

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
        self.begin(turn);
        if let Err(error) = self.check_kind(turn, lock.kind) {
            self.pulse_and_hand_on(turn);
            return Err(error);
        }
        // Before the lock is handed on: the hold that the caller saw may have just expired, and the next holder must not
        // pay for it.
        if self.holds.is_empty() {
            self.pulse(turn.now);
            self.hand_on(turn);
            return Ok(ForceReleased::NotHeld);
        }
        for hold in self.holds.take() {
            tell_taken(turn, hold);
        }
        self.pulse(turn.now);
        self.hand_on_or_wake_plain(turn);
        Ok(ForceReleased::Taken)
    }

    /// Takes one hold from its owner: [`Backend::take_hold`](fairlock_core::backend::Backend::take_hold).
    pub fn take_hold(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>) -> ForceReleased {
        self.begin(turn);
        let Some(taken) = self.holds.find(hold).and_then(|token| self.holds.remove(token)) else {
            self.pulse(turn.now);
            self.hand_on(turn);
            return ForceReleased::NotHeld;
        };
        tell_taken(turn, taken);
        self.pulse(turn.now);
        self.hand_on_or_wake_plain(turn);
        ForceReleased::Taken
    }

    /// Removes a place, and remembers that: [`Backend::kick`](fairlock_core::backend::Backend::kick).
    pub fn kick(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.begin(turn);
        if !self.line.is_empty() && self.holds.of(place.owner, place.request).is_none() {
            self.line.pulse(turn.now);
            self.line.kick(place.owner, place.request);
        }
        self.withdraw(turn, place)
    }
}

fn tell_taken(turn: &mut Turn<'_>, hold: KeptHold) {
    turn.tell(&hold.owner, News::Taken { token: hold.token });
}
