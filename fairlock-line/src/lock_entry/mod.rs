//! One lock: its holders, its waiters, and which of them is next.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, Hold, HoldCountSet, HoldKept, LockId, LockState, MOST_INSPECTED, Place,
    Released, RequestId, Wait, Withdrawn,
};
use fairlock_core::{LockKind, OwnerId};

use crate::interest::Interest;
use crate::line::{Heartbeat, Line};
use crate::turn::{Moment, Turn};
use crate::wake_up::News;
use crate::wrong::Wrong;

mod encoded;
mod force;
mod hand_on;
mod hold;
mod kept_hold;
mod kind;
mod many;
#[cfg(feature = "model")]
mod parts;
mod renewal;
mod sole_hold;

use hand_on::Left;
use hold::Holds;
pub use kept_hold::KeptHold;
#[cfg(feature = "model")]
pub use parts::Parts;
pub use renewal::{lock_of, renew_by_lock};

/// How long after the end of a hold the first in line looks, so that the hold has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// A waiter for a lock with several holders looks no more often.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// How many holders `inspect` lists.
const MOST_HOLDERS: usize = 500;

/// The state of one lock, and all that can be done with it. The name may also be unused: then it is the [`Default`].
///
/// Each operation is that of [`Backend`](fairlock_core::backend::Backend), and may be repeated, as there. The entry and the
/// [`Turn`] must be those of the lock which the question names.
///
/// | units | line, interest | what the next operation on the lock does |
/// | --- | --- | --- |
/// | all are taken | any | nothing: the line waits |
/// | some are free | the first present waiter fits | grants it, and looks at the next one |
/// | some are free | the first present waiter does not fit | nothing: the line waits |
/// | some are free | all parked, or interest only | leaves them free, for a newcomer |
/// | a lease has ended | any | drops that hold, then as above |
///
/// An exclusive lock has one unit. A fair and a plain handle of one name share it. Every release serves the line first, so no
/// plain waiter barges.
pub struct LockEntry {
    /// Of all its holds and present waiters.
    kind: LockKind,
    holds: Holds,
    line: Line,
    interest: Interest,
    /// How many operations there were. Not part of the state: it only tells them apart.
    calls: u64,
    /// Until when it grants nothing. Not part of the state.
    grace: Option<Moment>,
}

impl Default for LockEntry {
    fn default() -> LockEntry {
        let (holds, line, interest) = (Holds::default(), Line::default(), Interest::default());
        LockEntry { kind: LockKind::Fair, holds, line, interest, calls: 0, grace: None }
    }
}

impl LockEntry {
    /// Whether no request holds the lock or waits for it, and the entry can be dropped.
    pub fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.line.is_empty() && self.interest.is_empty()
    }

    /// From when on it can be dropped, if nothing is heard of it until then: its holds are over, and its waiters have been silent
    /// for too long.
    pub fn over_at(&self) -> Moment {
        let holds = self.holds.iter().map(|hold| hold.ends).max().unwrap_or_default();
        holds.max(self.line.over_at()).max(self.interest.over_at())
    }

    /// Until then it grants nothing, and all wait as for a hold that ends then: the store may have forgotten holds. The store says
    /// so again each time that it has loaded the entry.
    pub fn grant_nothing_until(&mut self, until: Moment) {
        self.grace = Some(until);
    }

    /// No waiter could be heard from then on until now, as while another transaction has a row locked. So that time makes none absent.
    /// The store says so before the first operation after it.
    pub fn heard_nobody_since(&mut self, since: Moment, now: Moment) {
        self.line.skip(since, now);
    }

    /// Each operation begins with this: it has a number, and a hold whose lease has ended is none.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        self.calls += 1;
        turn.call = self.calls;
        self.grace.take_if(|until| *until <= turn.now);
        if !turn.is(Wrong::OverIsKept) {
            self.holds.drop_over(turn.now);
        }
    }

    /// Takes the lock, or a place in its line: [`Backend::acquire`](fairlock_core::backend::Backend::acquire).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind; `InvalidConfig` for more units than the lock has.
    pub fn acquire(&mut self, turn: &mut Turn<'_>, ask: &Acquire<'_>) -> Result<Acquired, BackendError> {
        self.begin(turn);
        if let Err(error) = self.check_place(turn, &ask.place) {
            self.pulse_and_hand_on(turn);
            return Err(error);
        }
        let Place { lock, owner, request, wait, takes, .. } = ask.place;
        // A hold of this owner under another request does not matter: which of the two requests is the late one can't be known.
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(turn.now)); // a repeat
        }
        let heartbeat = heartbeat_of(ask, turn);
        let queues = wait != Wait::No && lock.kind != LockKind::Plain;
        let in_line = self.line.refresh(heartbeat, turn.now) || queues && self.restore(turn, heartbeat);
        if turn.is(Wrong::NewcomerBarges) && !in_line && takes <= self.free() {
            return Ok(self.grant(turn, ask));
        }
        let free = self.free() > 0;
        let left = self.pulse_and_hand_on(turn);
        if in_line && let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(turn.now));
        }
        if left == Left::ForANewcomer && takes <= self.free() {
            return Ok(self.grant(turn, ask));
        }
        if queues {
            if !in_line {
                self.line.join(heartbeat, turn.next_number(), turn.now);
            }
            // A newcomer to a held lock has no time for that.
            if in_line || free {
                self.line.sweep(turn.call);
            }
            return Ok(self.queued(turn, &ask.place));
        }
        let mut rests_for = Duration::ZERO;
        match wait {
            Wait::No => {
                self.remove(owner, request);
                if in_line {
                    self.hand_on(turn); // it may have been the one that did not fit
                }
            }
            Wait::UpTo(_) | Wait::Forever => {
                self.interest.refresh(&ask.place, turn.now);
                rests_for = self.rests_for(turn.now); // or it would ask without a pause
            }
        }
        Ok(Acquired::Busy { recheck_in: self.lease_left(turn.now).max(rests_for) })
    }

    /// Sets the hold count: [`Backend::set_hold_count`](fairlock_core::backend::Backend::set_hold_count).
    pub fn set_hold_count(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>, holds: u32) -> HoldCountSet {
        self.begin(turn);
        let kept = self.holds.find(hold).map(|token| self.holds.set_count(token, holds));
        self.pulse_and_hand_on(turn);
        kept.map_or(HoldCountSet::Lost, |()| HoldCountSet::Set)
    }

    /// Gives a hold up, and hands the lock on: [`Backend::release`](fairlock_core::backend::Backend::release).
    pub fn release(&mut self, turn: &mut Turn<'_>, hold: &Hold<'_>) -> Released {
        self.begin(turn);
        let Some(held) = self.holds.find(hold) else {
            // A late repeat of its acquire may have come here after the hold ended.
            if self.line.has(hold.owner, hold.request) {
                self.line.pulse(turn.now);
            }
            self.line.leave(hold.owner, hold.request);
            self.pulse_and_hand_on(turn);
            return Released::NotHeld;
        };
        self.holds.remove(held);
        self.pulse(turn.now);
        self.hand_on_or_wake_plain(turn);
        Released::Released
    }

    /// Gives a hold up, and keeps its units taken for this lease: [`Backend::keep`](fairlock_core::backend::Backend::keep). Waiters
    /// were told to look at a later end, and are told to look again.
    pub fn keep(
        &mut self,
        turn: &mut Turn<'_>,
        hold: &Hold<'_>,
        keeper: RequestId,
        lease: Duration,
    ) -> HoldKept {
        self.begin(turn);
        let mut ends = turn.now.saturating_add(lease);
        let kept = self.holds.of(hold.owner, keeper).filter(|kept| kept.token == hold.token);
        let found = match kept {
            Some(kept) => {
                ends = ends.min(kept.ends);
                Some(kept.token)
            }
            None => self.holds.find(hold),
        };
        let Some(token) = found else { return HoldKept::NotHeld };
        self.holds.hand_to(token, keeper, ends);
        if let Some(first) = self.line.first() {
            turn.tell(first, News::Recheck);
        }
        self.wake_plain(turn);
        HoldKept::Kept
    }

    /// Takes a request out of the line: [`Backend::withdraw`](fairlock_core::backend::Backend::withdraw).
    pub fn withdraw(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.begin(turn);
        if let Some(hold) = self.holds.of(place.owner, place.request) {
            return Withdrawn::WasGranted { token: hold.token, lease: hold.left(turn.now) };
        }
        self.pulse(turn.now);
        // Before the lock is handed on: a free unit must not go to the leaving request. The request may have been the first, and
        // not have fitted: then others fit now.
        self.line.leave(place.owner, place.request);
        self.interest.remove(place.owner, place.request);
        self.hand_on(turn);
        Withdrawn::Left
    }

    /// Tells the holders and a part of the line: [`Backend::inspect`](fairlock_core::backend::Backend::inspect). Changes
    /// nothing: even what has expired stays.
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind.
    pub fn inspect(
        &self,
        turn: &Turn<'_>,
        lock: &LockId,
        part: Range<u64>,
    ) -> Result<LockState, BackendError> {
        let (mut state, now) = (LockState::default(), turn.now);
        if !self.is_idle(turn) {
            // An operator need not know how many units it has.
            if (self.kind.capacity() == 1) != (lock.kind.capacity() == 1) {
                return Err(self.mismatch(lock.kind));
            }
            state.capacity = self.kind.is_shared().then(|| self.kind.capacity());
        }
        state.line_length = self.line.length();
        state.absent = self.line.absent(now, if part.is_empty() { 0 } else { MOST_INSPECTED });
        state.line = self.line.inspect(now, part);
        let (mut holds, others) = self.holds.first_to_end(now, MOST_HOLDERS);
        holds.sort_by_key(|hold| hold.token);
        state.holders = holds.into_iter().map(|hold| hold.inspect(now)).collect();
        state.unlisted_holders = others;
        if others > 0 {
            state.unlisted_units = self.holds.taken().saturating_sub(state.taken());
        }
        Ok(state)
    }

    /// For tests: the holds vanish, without a message.
    pub fn lose_hold(&mut self) {
        self.holds = Holds::default();
    }

    /// For tests: the places vanish, without a message.
    pub fn lose_line(&mut self) {
        self.line.lose();
    }

    fn remove(&mut self, owner: &OwnerId, request: RequestId) {
        self.line.remove(owner, request);
        self.interest.remove(owner, request);
    }

    fn queued(&self, turn: &Turn<'_>, place: &Place<'_>) -> Acquired {
        let (rank, recheck_in) = self.rank_and_recheck_in(turn, place);
        let ticket = self.line.ticket_of(place.owner, place.request).unwrap_or(0);
        Acquired::Queued { rank, recheck_in, ticket, latest: turn.last_number() }
    }

    /// The rank of a present request, and when it looks without a wake-up: when the first of the holds ends, if it is first in
    /// line, or the first of its client and its next heartbeat would be later than that. For all waiters ahead may have died
    /// with the holder. While the line rests: after that.
    fn rank_and_recheck_in(&self, turn: &Turn<'_>, place: &Place<'_>) -> (u64, Duration) {
        let left = self.lease_left(turn.now);
        let rank = self.line.rank_of(place.owner, place.request).unwrap_or(0);
        let looks = rank == 0
            || left.saturating_mul(3) < place.ttl
                && self.line.first_of_call(turn.call) == Some(place.request);
        if !looks {
            return (rank, Duration::MAX);
        }
        let rests_for = self.rests_for(turn.now);
        let when = match left.saturating_add(PAST_THE_END) {
            _ if !rests_for.is_zero() => rests_for,
            // Several holds may end one soon after the other.
            when if self.kind.is_shared() => when.max(LOOKS_EVERY),
            when => when,
        };
        (rank, when)
    }

    /// For how long units stay free, since the line rests.
    fn rests_for(&self, now: Moment) -> Duration {
        if self.free() > 0 { self.line.rests_for(now) } else { Duration::ZERO }
    }

    /// The rest of the lease that ends first, and of the grace; zero if the lock is free.
    fn lease_left(&self, now: Moment) -> Duration {
        self.holds.first_end().max(self.grace).map_or(Duration::ZERO, |end| end.saturating_sub(now))
    }
}

fn heartbeat_of<'a>(ask: &'a Acquire<'a>, turn: &Turn<'_>) -> Heartbeat<'a> {
    Heartbeat { place: &ask.place, lease: ask.lease, label: Some(ask.label), call: turn.call }
}
