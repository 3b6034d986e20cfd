//! What operators do: take holds away, and remove waiters.

use fairlock_core::backend::{BackendError, ForceReleased, Hold, LockId, Place, Withdrawn};

use super::LockEntry;
use super::kept_hold::KeptHold;
use crate::turn::Turn;
use crate::wake_ups::WakeUp;

impl LockEntry {
    pub(crate) fn force_release(
        &mut self,
        turn: &mut Turn<'_>,
        lock: &LockId,
    ) -> Result<ForceReleased, BackendError> {
        self.holds.drop_over(turn.now);
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

    pub(crate) fn take_hold(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>) -> ForceReleased {
        self.holds.drop_over(turn.now);
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

    pub(crate) fn kick(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.holds.drop_over(turn.now);
        if !self.line.is_empty() && self.holds.of(place.owner, place.request).is_none() {
            self.line.pulse(turn.now);
            self.line.kick(place.owner, place.request);
        }
        self.withdraw(turn, place)
    }
}

fn tell_taken(turn: &mut Turn<'_>, hold: KeptHold) {
    let KeptHold { owner, token, .. } = hold;
    let lock = turn.lock.clone();
    turn.send(&owner, WakeUp::Taken { lock, owner: owner.clone(), token });
}
