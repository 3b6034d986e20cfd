//! The state of one lock: its holders, its waiters, its kind, and the note of its last grant; and what a store asks about the state.

use std::time::Duration;

use fairlock_core::backend::{
    Acquire, BackendError, BackendErrorKind, Declined, Place, RequestId, Since, Wait,
};
use fairlock_core::{FencingToken, LockKind, OwnerId};

use crate::bytes::DecodeError;
use crate::context::{Moment, OperationContext, Wrong};
use crate::queue::{Interest, Queue};

mod encoded;
mod holds;
mod operations;
mod rule;

#[cfg(feature = "model")]
pub use encoded::Parts;
pub use holds::GrantedHold;
use holds::{FEW, Holds};
pub use operations::{fits_pattern, lock_of, renew_by_lock};

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of one lock, and all operations on it. The state of an unused name is the [`Default`].
///
/// Each operation is that of [`Backend`](fairlock_core::backend::Backend), and may be repeated, as there. The entry and the
/// [`OperationContext`] must be those of the lock which the question names.
///
/// | units | queue, interest | what the next operation on the lock does |
/// | --- | --- | --- |
/// | all are taken | any | nothing: the queue waits |
/// | some are free | the first waiter is absent | takes it out, and looks at the next one |
/// | some are free | the first present waiter fits | grants it, and looks at the next one |
/// | some are free | the first present waiter does not fit | nothing: the queue waits |
/// | some are free | all are absent, or interest only | leaves them free, for a newcomer |
/// | a lease has ended | any | drops that hold, then as above |
///
/// An exclusive lock has one unit. A fair and a plain handle of one name share it. Every release serves the queue first, so no
/// plain waiter barges.
pub struct LockEntry {
    /// The kind of all holds and present waiters. Of a semaphore: with the number of permits of the last grant.
    kind: LockKind,
    holds: Holds,
    queue: Queue,
    interest: Interest,
    /// None for a lock that nobody wants once in a period.
    note: Option<Note>,
    /// How many operations there were: tells operations apart. Not part of the state.
    calls: u64,
    /// Until when the lock grants nothing. Not part of the state.
    grace: Option<Moment>,
}

impl Default for LockEntry {
    fn default() -> LockEntry {
        let (holds, queue, interest) = (Holds::default(), Queue::default(), Interest::default());
        LockEntry { kind: LockKind::Fair, holds, queue, interest, note: None, calls: 0, grace: None }
    }
}

impl LockEntry {
    /// Whether no request holds the lock or waits for it, nothing is noted, and the entry can be dropped.
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty() && self.interest.is_empty() && self.note.is_none()
    }

    /// From when on the entry can be dropped, if no operation comes until then: the holds are over, and the waiters have been silent
    /// for too long. But not before [`note_ends`](LockEntry::note_ends).
    pub fn over_at(&self) -> Moment {
        let holds = self.holds.iter().map(|hold| hold.ends).max().unwrap_or_default();
        holds.max(self.queue.over_at()).max(self.interest.over_at())
    }

    /// From when on a store can forget the entry and the last number: a day after the last use, so that tokens grow even if the
    /// clock is set back. Numbers follow the clock, so the last number tells when the last use was.
    pub fn forget_at(&self, last: u64) -> Moment {
        self.over_at().max(self.note_ends()).max(Duration::from_micros(last)).saturating_add(A_DAY)
    }

    /// Until this moment the entry grants nothing, as if a hold ended then: the store may have forgotten holds. The store repeats
    /// this call after each load of the entry.
    pub fn grant_nothing_until(&mut self, until: Moment) {
        self.grace = Some(until);
    }

    /// Says that no waiter could be heard from then until now, as while another transaction has the row locked: that time makes no
    /// waiter absent. The store says so before the next operation.
    pub fn heard_nobody_since(&mut self, since: Moment, now: Moment) {
        self.queue.skip(since, now);
    }

    /// How long ago the last operation on the queue was. Zero while nobody waits.
    pub fn silent_for(&self, now: Moment) -> Duration {
        self.queue.silent_for(now)
    }

    /// How each operation begins: it gets a number, and drops holds whose leases have ended.
    fn read(&mut self, context: &mut OperationContext<'_>) {
        self.calls += 1;
        context.call = self.calls;
        self.grace.take_if(|until| *until <= context.now);
        if !context.is(Wrong::OverIsKept) {
            self.holds.drop_over(context.now);
        }
    }

    /// Ends the holds of processes that have certainly ended, if a client that names this kind finds fewer units free than `wanted`. A
    /// store that can tell calls this before a request or a heartbeat of a waiter is answered. Looks at the few holds that end first: a
    /// dead holder renews nothing.
    pub fn end_gone(&mut self, context: &OperationContext<'_>, asked: LockKind, wanted: u32) {
        if self.free_of(asked) < wanted {
            let (few, _) = self.holds.first_to_end(context.now, FEW);
            let gone: Vec<_> =
                few.into_iter().filter(|hold| context.is_gone(&hold.owner)).map(|hold| hold.token).collect();
            for token in gone {
                self.holds.remove(token);
            }
        }
    }

    /// The owners whose end a request waits for: holders, and places ahead, the nearest first; at most so many of each.
    pub fn ahead_of(
        &self,
        owner: &OwnerId,
        request: RequestId,
        most: usize,
    ) -> impl Iterator<Item = &OwnerId> {
        let ticket = self.queue.ticket_of(owner, request, 0).unwrap_or_default();
        let places = self.queue.ahead_of(ticket).map(|place| place.owner.get()).take(most);
        self.holds.iter().map(|hold| &hold.owner).take(most).chain(places)
    }

    /// Takes the hold of an exclusive lock out of the state, if the store can keep this hold. None if nothing is held, or if the lock
    /// can have several holds.
    pub fn take_sole_hold_if(&mut self, can_keep: impl FnOnce(&GrantedHold) -> bool) -> Option<GrantedHold> {
        let sole = self.holds.iter().next().filter(|hold| !self.kind.is_shared() && can_keep(hold))?;
        self.holds.remove(sole.token)
    }

    /// Puts a hold back that [`take_sole_hold_if`](LockEntry::take_sole_hold_if) took out of this state, of a lock whose last number is
    /// `last`.
    ///
    /// # Errors
    /// If that can't be: the state has a hold or is that of a lock of several holders, or the token was not drawn yet.
    pub fn put_sole_hold(&mut self, hold: GrantedHold, last: u64) -> Result<(), DecodeError> {
        if self.kind.is_shared() || !self.holds.is_empty() || hold.token.get() > last {
            return Err(DecodeError::Damaged { at: 0 });
        }
        self.holds.add(hold);
        Ok(())
    }

    /// The owners of the waiters, the first in the queue first. An [`OperationContext`] asks
    /// `presence` about these owners, and those of holds.
    pub fn heads(&self) -> impl Iterator<Item = &OwnerId> {
        self.queue.places().map(|(_, place)| place.owner.get())
    }

    /// The token of this request's hold at this moment; none without a hold. Changes nothing.
    pub fn token_of(&self, owner: &OwnerId, request: RequestId, now: Moment) -> Option<FencingToken> {
        self.holds.of(owner, request).filter(|hold| now < hold.ends).map(|hold| hold.token)
    }

    /// Whether the waiters for a plain lock have a reason to ask: nobody holds the lock at this moment. Changes nothing.
    pub fn is_free_for_plain(&self, now: Moment) -> bool {
        !self.interest.is_empty() && self.holds.iter().all(|hold| hold.ends <= now)
    }

    /// For tests: the holds vanish, without a message.
    pub fn lose_hold(&mut self) {
        self.holds = Holds::default();
    }

    /// For tests: the places vanish, without a message.
    pub fn lose_queue(&mut self) {
        self.queue.lose();
    }
}

// Which kind of lock a name is: the kind of its holds and waiters. An idle name becomes what the next request asks for.

impl LockEntry {
    /// The units that no hold takes; none in a grace, since a forgotten hold may have them.
    fn free(&self) -> u32 {
        self.free_of(self.kind)
    }

    /// The same for a client that names this kind.
    fn free_of(&self, asked: LockKind) -> u32 {
        if self.grace.is_some() { 0 } else { asked.capacity().saturating_sub(self.holds.taken()) }
    }

    /// Fails for a place that could never be granted, and for a place in a lock of another kind.
    fn check_place(
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
    fn may_grant(&self, place: &Place<'_>) -> bool {
        fits_ever(place) && self.kind.agrees_with(place.lock.kind)
    }

    /// Fails if the name is in use for a lock of another kind. An idle name becomes one of this kind.
    fn check_kind(
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
    fn mismatch(&self, asked: LockKind) -> BackendError {
        BackendError::mismatch(self.kind.capacity(), asked)
    }

    /// Whether the name is neither held nor waited for. Absent waiters do not count.
    fn is_idle(&self, context: &OperationContext<'_>) -> bool {
        self.holds.iter().all(|hold| hold.ends <= context.now || context.is_gone(&hold.owner))
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

/// When the lock was granted last, for a lock that is to be granted once in a period. From the first ask that names such a period on, each
/// grant is noted, of whatever request. The note stands in the state, and stays there for as long as the state does: at least until
/// [`note_ends`](LockEntry::note_ends). `lib/queue.lua` of the Redis backend is the same.
///
/// Its times are since 1970, even where leases go by another clock.
#[derive(Clone, Copy, Default)]
struct Note {
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
    fn declines(&mut self, context: &OperationContext<'_>, ask: &Acquire<'_>) -> Option<Declined> {
        let place = &ask.place;
        let since = ask.condition.not_granted.filter(|_| place.wait == Wait::No && fits_ever(place))?;
        let is_known = self.holds.of(place.owner, place.request).is_some()
            || self.queue.ticket_of(place.owner, place.request, place.ticket).is_some();
        let is_other = !self.kind.agrees_with(place.lock.kind)
            && self.holds.iter().any(|hold| !context.is_gone(&hold.owner));
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
    fn is_granted(&mut self, granted: u64) {
        self.granted = self.granted.max(granted);
        self.lasts_from(Duration::from_micros(self.granted));
    }

    fn lasts_from(&mut self, moment: Moment) {
        self.until = self.until.max(moment.saturating_add(self.keep));
    }
}

#[cfg(test)]
mod note_tests;
#[cfg(test)]
mod tests;
