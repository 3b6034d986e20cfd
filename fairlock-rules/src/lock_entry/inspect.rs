//! Tells what an operator sees. Changes nothing: even what has expired stays.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{BackendError, LockId, LockState, MOST_INSPECTED};
use fairlock_core::{LockKind, LockName};

use super::LockEntry;
use crate::context::OperationContext;

/// How many holders it lists.
const MOST_HOLDERS: usize = 500;

impl LockEntry {
    /// Tells the holders and a part of the queue: [`Backend::inspect`](fairlock_core::backend::Backend::inspect).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind.
    pub fn inspect(
        &self,
        context: &OperationContext<'_>,
        lock: &LockId,
        part: Range<u64>,
    ) -> Result<LockState, BackendError> {
        let (mut state, now) = (LockState::default(), context.now);
        if !self.is_idle(context) {
            // An operator need not know how many units it has.
            if (self.kind.capacity() == 1) != (lock.kind.capacity() == 1) {
                return Err(self.mismatch(lock.kind));
            }
            state.capacity = self.kind.is_shared().then(|| self.kind.capacity());
        }
        state.queue_length = self.queue.length();
        state.absent = self
            .queue
            .absent(now, if part.is_empty() { 0 } else { MOST_INSPECTED }, |owner| context.is_gone(owner));
        state.queue = self.queue.inspect(now, part);
        let gone = state.queue.iter_mut().filter(|waiter| context.is_gone(&waiter.owner));
        gone.for_each(|waiter| waiter.place_left = Some(Duration::ZERO));
        let (mut holds, others) = self.holds.first_to_end(now, MOST_HOLDERS);
        holds.retain(|hold| !hold.is_of_gone(context));
        holds.sort_by_key(|hold| hold.token);
        state.holders = holds.into_iter().map(|hold| hold.inspect(now)).collect();
        state.unlisted_holders = others;
        if others > 0 {
            state.unlisted_units = self.holds.taken().saturating_sub(state.taken());
        }
        Ok(state)
    }

    /// The lock in a list: its holders, its first waiter, and the numbers of waiters. None for an unused lock.
    pub fn listed(&self, context: &OperationContext<'_>, name: &LockName) -> Option<LockState> {
        // One waiter at least: a look at none of the queue does not tell who is absent.
        let look = |kind| self.inspect(context, &LockId::new(name.clone(), kind), 0..1);
        let state = look(LockKind::Fair).or_else(|_| look(LockKind::ReadWrite)).ok()?;
        Some(state).filter(|state| !state.holders.is_empty() || state.waiting() > 0)
    }
}
