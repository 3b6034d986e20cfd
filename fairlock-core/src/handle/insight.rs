//! What an operator does with a lock: look at it, take it from its holder, take a place from a waiter.

use std::ops::Range;

use crate::backend::{ForceReleased, LockState, MOST_INSPECTED, Place, RequestId, Waiter, Withdrawn};
use crate::handle::{Lock, Ownership};
use crate::{Error, OwnerId, Result};

/// How many of the line `inspect` shows.
const FIRST_OF_THE_LINE: u64 = 100;

impl<O: Ownership> Lock<O> {
    /// Whether anybody holds the lock. One round trip, which does not read the line.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn is_locked(&self) -> Result<bool> {
        self.inspect_line(0..0).map(|state| state.holder.is_some())
    }

    /// Who holds the lock, how many wait for it, and the first 100 of them. One round trip.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`], [`Error::Corrupt`], [`Error::Shutdown`].
    pub fn inspect(&self) -> Result<LockState> {
        self.inspect_line(0..FIRST_OF_THE_LINE)
    }

    /// [`inspect`](Self::inspect) of another part of the line: `100..200` are those behind the first 100. One call reads
    /// at most 500, so that no look keeps the server busy, however long the line is. For more, ask again from where it ended
    /// (`part.start + line.len()`), until nobody is left; the line may move between two calls.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn inspect_line(&self, part: Range<u64>) -> Result<LockState> {
        self.0.shared.check_running(Some(&self.0.lock.name))?;
        let end = part.end.min(part.start.saturating_add(MOST_INSPECTED));
        let state = self.0.shared.backend.inspect(&self.0.lock, part.start..end.max(part.start));
        state.map_err(|error| Error::about(&self.0.lock.name, error))
    }

    /// Where an owner stands in the line (0 is next), and its place. It reads the line from the tail, 500 a call, until
    /// the owner is found: no call keeps the server busy, but the whole takes its time in a line of thousands.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn find_waiter(&self, owner: &OwnerId) -> Result<Option<(u64, Waiter)>> {
        let mut length = self.inspect_line(0..0)?.line_length;
        let mut end = length;
        while end > 0 {
            // From the tail to the head: where some are granted or leave meanwhile, the others move up, into what was not
            // read yet. From the head, one of them could slip past between two calls.
            let start = end.saturating_sub(MOST_INSPECTED);
            let state = self.inspect_line(start..end)?;
            if let Some(found) = find_in(state.line, start, owner) {
                return Ok(Some(found));
            }
            (end, length) = (start, state.line_length);
        }
        // One that was passed over as absent meanwhile has moved from what was not read yet to the very end.
        let start = length.saturating_sub(MOST_INSPECTED);
        Ok(find_in(self.inspect_line(start..length)?.line, start, owner))
    }

    /// Takes the lock from whoever holds it; false if nobody does. The line stays, and its first gets the lock. A
    /// holder that is a fairlock client is told; others find out when they renew.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn force_unlock(&self) -> Result<bool> {
        self.0.shared.check_running(Some(&self.0.lock.name))?;
        match self.0.shared.backend.force_release(&self.0.lock) {
            Ok(ForceReleased::Taken) => Ok(true),
            Ok(ForceReleased::NotHeld) => Ok(false),
            Err(error) => Err(Error::about(&self.0.lock.name, error)),
        }
    }

    /// Takes away the place of this waiter, as [`inspect`](Self::inspect) and [`find_waiter`](Self::find_waiter) list it. One
    /// that is alive asks again, at the tail. True: the place is gone; false: the waiter holds the lock by now, or
    /// is not in line.
    ///
    /// One round trip where the waiter has a request; else (Redisson's line keeps none) it is looked for first.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn kick(&self, waiter: &Waiter) -> Result<bool> {
        self.0.shared.check_running(Some(&self.0.lock.name))?;
        let request = match waiter.request {
            Some(request) => request,
            None => match self.find_waiter(&waiter.owner)? {
                Some((_, found)) => found.request.unwrap_or(RequestId::new(0)),
                None => return Ok(false),
            },
        };
        match self.0.shared.backend.kick(&Place::new(&self.0.lock, &waiter.owner, request)) {
            Ok(Withdrawn::Left) => Ok(true),
            Ok(Withdrawn::WasGranted { .. }) => Ok(false),
            Err(error) => Err(Error::about(&self.0.lock.name, error)),
        }
    }
}

fn find_in(line: Vec<Waiter>, start: u64, owner: &OwnerId) -> Option<(u64, Waiter)> {
    (start..).zip(line).find(|(_, waiter)| waiter.owner == *owner)
}
