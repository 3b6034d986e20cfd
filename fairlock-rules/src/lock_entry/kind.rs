//! Which kind of lock a name is: the kind of its holds and waiters. An idle name becomes what the next request asks for.

use fairlock_core::LockKind;
use fairlock_core::backend::{BackendError, BackendErrorKind, Place};

use super::LockEntry;
use super::hold::Holds;
use crate::context::OperationContext;

impl LockEntry {
    /// The units that no hold takes; none in a grace, since a forgotten hold may have them.
    pub(super) fn free(&self) -> u32 {
        if self.grace.is_some() { 0 } else { self.kind.capacity().saturating_sub(self.holds.taken()) }
    }

    /// Fails for a place that could never be granted, and for a place in a lock of another kind.
    pub(super) fn check_place(
        &mut self,
        context: &mut OperationContext<'_>,
        place: &Place<'_>,
    ) -> Result<(), BackendError> {
        if !fits_ever(place) {
            return Err(never_granted(place));
        }
        self.check_kind(context, place.lock.kind)
    }

    /// Whether the place could be granted something of this lock as it is now.
    pub(super) fn may_grant(&self, place: &Place<'_>) -> bool {
        fits_ever(place) && self.kind.agrees_with(place.lock.kind)
    }

    /// Fails if the name is in use for a lock of another kind. An idle name becomes one of this kind.
    pub(super) fn check_kind(
        &mut self,
        context: &mut OperationContext<'_>,
        asked: LockKind,
    ) -> Result<(), BackendError> {
        if self.kind.agrees_with(asked) {
            return Ok(());
        }
        if !self.is_idle(context) {
            return Err(self.mismatch(asked));
        }
        self.holds = Holds::default(); // all are over, or of processes that have ended
        // All waiters are absent, and leave: their turn has come. If they ask again, they ask for another kind.
        let tickets: Vec<_> = self.queue.places().map(|(ticket, _)| ticket).collect();
        for ticket in tickets {
            self.queue.remove(ticket);
            self.queue.serve(ticket);
        }
        self.kind = asked;
        Ok(())
    }

    #[cold]
    pub(super) fn mismatch(&self, asked: LockKind) -> BackendError {
        BackendError::mismatch(self.kind.capacity(), asked)
    }

    /// Whether the name is neither held nor waited for. Absent waiters do not count.
    pub(super) fn is_idle(&self, context: &OperationContext<'_>) -> bool {
        self.holds.iter().all(|hold| hold.ends <= context.now || hold.is_of_gone(context))
            && self.queue.rests_for(context.now).is_zero()
            && !self.queue.places().any(|(_, place)| self.is_present(context, place))
            && !self.interest.is_present(context.now)
    }
}

fn fits_ever(place: &Place<'_>) -> bool {
    0 < place.units && place.units <= place.lock.kind.capacity()
}

#[cold]
fn never_granted(place: &Place<'_>) -> BackendError {
    let Place { lock, units, .. } = *place;
    let message = format!("a request for {units} units of what is a {}", lock.kind);
    BackendError::new(BackendErrorKind::InvalidConfig, message)
}
