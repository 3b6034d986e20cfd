//! The note of a lock that is to be granted once in a period: when the lock was granted last.
//!
//! From the first ask that names such a period on, each grant is noted, of whatever request. The note stands in the state, and stays there
//! for as long as the state does: at least until [`note_ends`](LockEntry::note_ends). `lib/queue.lua` of the Redis backend is the same.

use std::time::Duration;

use fairlock_core::backend::{Acquire, Declined, Since, Wait};

use super::{LockEntry, fits_ever};
use crate::bytes::{Coded, read};
use crate::context::{Moment, OperationContext};

/// Its times are since 1970, even where leases go by another clock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Note {
    /// The last grant, in microseconds; 0 before the first one. Ahead of the clock after a clock was set back.
    granted: u64,
    /// Twice the longest period that was named.
    keep: Duration,
    /// Until when the note must not be lost.
    until: Moment,
}

impl LockEntry {
    /// Until when a store must not forget the entry, even if nothing else is left of the lock: the time since 1970. Zero without a note.
    pub fn note_ends(&self) -> Moment {
        self.note.map_or(Moment::ZERO, |note| note.until)
    }

    /// What another boot of the machine must know of this lock: the note.
    pub fn after_reboot(&self) -> LockEntry {
        LockEntry { note: self.note, ..LockEntry::default() }
    }

    /// Notes that a request wants the lock only if it was not granted since a moment, and declines the request if it was. A request that
    /// has a hold or a place keeps it; and where the lock is held as one of another kind, the request hears of that.
    pub(super) fn declines(&mut self, context: &OperationContext<'_>, ask: &Acquire<'_>) -> Option<Declined> {
        let place = &ask.place;
        let since = ask.condition.not_granted.filter(|_| place.wait == Wait::No && fits_ever(place))?;
        let is_known = self.holds.of(place.owner, place.request).is_some()
            || self.queue.ticket_of(place.owner, place.request, place.ticket).is_some();
        let is_other = !self.kind.agrees_with(place.lock.kind)
            && self.holds.iter().any(|hold| !hold.is_of_gone(context));
        if is_known || is_other {
            return None;
        }
        self.note.get_or_insert_default().declines(since, Duration::from_micros(context.micros_since_1970()))
    }
}

impl Note {
    /// A decline makes the note last longer only if it names a longer period: one period at least is left anyway.
    fn declines(&mut self, since: Since, now: Moment) -> Option<Declined> {
        self.keep = self.keep.max(since.period().saturating_mul(2));
        let granted = Duration::from_micros(self.granted);
        let is_declined = self.granted > 0 && granted >= since.at(now);
        self.lasts_from(if is_declined { granted } else { now });
        is_declined.then_some(Declined::Granted(granted))
    }

    /// Notes a grant.
    pub(super) fn is_granted(&mut self, granted: u64) {
        self.granted = self.granted.max(granted);
        self.lasts_from(Duration::from_micros(self.granted));
    }

    fn lasts_from(&mut self, moment: Moment) {
        self.until = self.until.max(moment.saturating_add(self.keep));
    }
}

impl Coded for Note {
    fn write(&self, out: &mut Vec<u8>) {
        let Note { granted, keep, until } = self;
        granted.write(out);
        [keep, until].into_iter().for_each(|time| time.write(out));
    }

    fn read(from: &mut &[u8]) -> Option<Note> {
        let (granted, keep, until) = read(from)?;
        Some(Note { granted, keep, until })
    }
}

#[cfg(test)]
mod tests;
