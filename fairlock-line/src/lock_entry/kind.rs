//! Which kind of lock a name is: that of its holds and its waiters. An idle name becomes what the next one asks for.

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, BackendErrorKind, Place};

use super::LockEntry;
use crate::turn::Turn;

impl LockEntry {
    /// The units that no hold takes; none in a grace, since a forgotten hold may have them.
    pub(super) fn free(&self) -> u32 {
        if self.grace.is_some() { 0 } else { self.kind.capacity().saturating_sub(self.holds.taken()) }
    }

    /// Fails for a place that could never be granted, and for one in a lock of another kind.
    pub(super) fn check_place(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Result<(), BackendError> {
        if place.takes == 0 || place.takes > place.lock.kind.capacity() {
            return Err(never_granted(place));
        }
        self.check_kind(turn, place.lock.kind)
    }

    /// Fails if the name is in use for a lock of another kind. An idle name becomes one of this kind.
    pub(super) fn check_kind(&mut self, turn: &mut Turn<'_>, asked: LockKind) -> Result<(), BackendError> {
        if self.kind.agrees_with(asked) {
            return Ok(());
        }
        if !self.is_idle(turn) {
            return Err(self.mismatch(asked));
        }
        // The places of absent waiters stay, for when they come back. Until then none of them is granted anything.
        self.line.park_all();
        self.kind = asked;
        Ok(())
    }

    #[cold]
    pub(super) fn mismatch(&self, asked: LockKind) -> BackendError {
        BackendError::mismatch(self.kind.capacity(), asked)
    }

    /// Whether the name is neither held nor waited for. Absent waiters do not count.
    pub(super) fn is_idle(&self, turn: &Turn<'_>) -> bool {
        self.holds.iter().all(|hold| hold.ends <= turn.now)
            && self.line.rests_for(turn.now).is_zero()
            && !self.line.has_present(turn.now, |place| (turn.is_listening)(&place.owner))
            && !self.interest.is_present(turn.now)
    }
}

#[cold]
fn never_granted(place: &Place<'_>) -> BackendError {
    let Place { lock, takes, .. } = *place;
    let message = format!("a request for {takes} units of what is a {}", lock.kind);
    BackendError::new(BackendErrorKind::InvalidConfig, message)
}
