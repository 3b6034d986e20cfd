//! The only hold of an exclusive lock beside the rest of its state, for stores that keep it in columns of a table.

use fairlock_core::OwnerId;

use super::LockEntry;
use super::kept_hold::KeptHold;

impl LockEntry {
    /// Takes the hold of an exclusive lock out of the state. None if nothing is held, or if the lock can have several holds.
    pub fn take_sole_hold(&mut self) -> Option<KeptHold> {
        if self.kind.is_shared() { None } else { self.holds.take().next() }
    }

    /// Puts a hold back that [`take_sole_hold`](LockEntry::take_sole_hold) took out of this state.
    pub fn put_sole_hold(&mut self, hold: KeptHold) {
        self.holds.add(hold);
    }

    /// The owners of the waiters that are not parked, the first in line first. Those are the ones that `is_listening` of a
    /// [`Turn`](crate::Turn) is asked about.
    pub fn heads(&self) -> impl Iterator<Item = &OwnerId> {
        self.line.heads()
    }
}
