//! One lock: its holder, its waiters, and which of them is next. Pure: the time is given.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, LockState, Place, Released, RequestId, Wait,
    Withdrawn,
};
use fairlock_core::{LockKind, OwnerId};

use crate::interest::Interest;
use crate::line::{Heartbeat, Line};
use crate::turn::{Moment, Turn};
use crate::wake_ups::WakeUp;

mod hand_on;
mod hold;
mod renewal;

use hold::KeptHold;

/// How long after the end of a hold the first in line looks, so that the hold has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// The state of one lock.
///
/// | holder | line, interest | what the next operation on the lock does |
/// | --- | --- | --- |
/// | none | a present waiter | hands the lock on (only after a `lose_hold`, or when all were absent) |
/// | none | all parked, or interest only | leaves it free |
/// | its lease has ended | any | drops the hold, then as above |
/// | holds | any | nothing: the line waits |
///
/// A fair and a plain handle of one name share the holder. Every release serves the line first, so no plain waiter barges.
#[derive(Default)]
pub(crate) struct LockEntry {
    holder: Option<KeptHold>,
    line: Line,
    interest: Interest,
}

impl LockEntry {
    /// Whether the entry can be dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.line.is_empty() && self.interest.is_empty()
    }

    /// Whether its holder and all its waiters have been silent for too long.
    pub(crate) fn is_abandoned(&self, now: Moment) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder.ends <= now)
            && self.line.is_abandoned(now)
            && self.interest.is_abandoned(now)
    }

    pub(crate) fn acquire(&mut self, turn: &mut Turn<'_>, ask: &Acquire<'_>) -> Acquired {
        self.drop_expired(turn);
        let Place { lock, owner, request, wait, .. } = ask.place;
        // A hold of this owner under another request does not matter: which of the two requests is the late one can't be known.
        if let Some(holder) = self.held_by(owner, request) {
            return holder.granted(turn.now); // a repeat
        }
        let heartbeat = heartbeat_of(ask, turn);
        let queues = wait != Wait::No && lock.kind == LockKind::Fair;
        let in_line = self.line.refresh(heartbeat, turn.now) || queues && self.restore(turn, heartbeat);
        let free = self.holder.is_none();
        self.pulse_and_hand_on(turn);
        match &self.holder {
            None if !self.line.rests_for(turn.now).is_zero() => {}
            // No waiter is present, not even the caller, which would have got the lock.
            None => return self.grant(turn, ask),
            Some(holder) if holder.is_of(owner, request) => return holder.granted(turn.now),
            Some(_) => {}
        }
        if queues {
            if !in_line {
                self.line.join(heartbeat, turn.next_number(), turn.now);
            }
            // A newcomer to a held lock has no time for that.
            if in_line || free {
                self.line.sweep(turn.call);
            }
            return self.queued(turn, &ask.place);
        }
        match wait {
            Wait::No => self.remove(owner, request),
            Wait::UpTo(_) | Wait::Forever => self.interest.refresh(&ask.place, turn.now),
        }
        Acquired::Busy { recheck_in: self.lease_left(turn.now) }
    }

    pub(crate) fn set_hold_count(
        &mut self,
        turn: &mut Turn<'_>,
        hold: &Hold<'_>,
        holds: u32,
    ) -> HoldCountSet {
        self.drop_expired(turn);
        if let Some(holder) = self.hold_as(hold) {
            holder.holds = holds;
            return HoldCountSet::Set;
        }
        self.pulse_and_hand_on(turn);
        HoldCountSet::Lost
    }

    pub(crate) fn release(
        &mut self,
        turn: &mut Turn<'_>,
        hold: &Hold<'_>,
        again: Option<&Acquire<'_>>,
    ) -> Released {
        self.drop_expired(turn);
        if self.hold_as(hold).is_none() {
            // A late repeat of its acquire may have come here after the hold ended.
            if self.line.has(hold.owner, hold.request) {
                self.line.pulse(turn.now);
                self.line.remove(hold.owner, hold.request);
            }
            // Perhaps the repeat of a bump: its new request is refreshed before the lock is handed on.
            let in_line = again.is_some_and(|ask| self.line.refresh(heartbeat_of(ask, turn), turn.now));
            self.pulse_and_hand_on(turn);
            return match again {
                Some(ask) if in_line || self.held_by(ask.place.owner, ask.place.request).is_some() => {
                    self.released_again(turn, &ask.place)
                }
                _ => Released::NotHeld,
            };
        }
        if let Some(ask) = again {
            // A plain lock has no line to queue in.
            if ask.place.lock.kind == LockKind::Plain || !self.has_present(turn) {
                return Released::Kept;
            }
            self.holder = None;
            // It joins before the lock is handed on, behind the waiter that gets it.
            if !self.line.refresh(heartbeat_of(ask, turn), turn.now) {
                self.line.join(heartbeat_of(ask, turn), turn.next_number(), turn.now);
            }
            self.hand_on_or_wake_plain(turn);
            return self.released_again(turn, &ask.place);
        }
        self.holder = None;
        self.hand_on_or_wake_plain(turn);
        Released::Released
    }

    pub(crate) fn withdraw(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.drop_expired(turn);
        self.pulse_if_free(turn.now);
        // Before the lock is handed on: a free lock must not go to the leaving request.
        self.remove(place.owner, place.request);
        if let Some(holder) = self.held_by(place.owner, place.request) {
            return Withdrawn::WasGranted { token: holder.token, lease: holder.left(turn.now) };
        }
        self.hand_on(turn);
        Withdrawn::Left
    }

    pub(crate) fn kick(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.drop_expired(turn);
        if !self.line.is_empty() && self.held_by(place.owner, place.request).is_none() {
            self.line.pulse(turn.now);
            self.line.kick(place.owner, place.request);
        }
        self.withdraw(turn, place)
    }

    pub(crate) fn force_release(&mut self, turn: &mut Turn<'_>) -> ForceReleased {
        self.drop_expired(turn);
        // Before the lock is handed on: the hold that the caller saw may have just expired, and the next holder must not
        // pay for it.
        let Some(holder) = self.holder.take() else {
            self.pulse_and_hand_on(turn);
            return ForceReleased::NotHeld;
        };
        let (lock, owner, token) = (turn.lock.clone(), holder.owner.clone(), holder.token);
        turn.send(&holder.owner, WakeUp::Taken { lock, owner, token });
        self.hand_on_or_wake_plain(turn);
        ForceReleased::Taken
    }

    pub(crate) fn inspect(&self, now: Moment, part: Range<u64>) -> LockState {
        let mut state = LockState::default();
        state.line_length = self.line.length();
        state.line = self.line.inspect(now, part);
        let holder = self.holder.as_ref().filter(|holder| now < holder.ends);
        state.holder = holder.map(|holder| holder.inspect(now));
        state
    }

    /// A test makes the hold vanish, without a wake-up.
    pub(crate) fn lose_hold(&mut self) {
        self.holder = None;
    }

    /// A test makes the places vanish, without a wake-up.
    pub(crate) fn lose_line(&mut self) {
        self.line.lose();
    }

    /// The first step of every operation: a hold whose lease has ended is none.
    fn drop_expired(&mut self, turn: &Turn<'_>) {
        self.holder.take_if(|holder| holder.ends <= turn.now);
    }

    fn remove(&mut self, owner: &OwnerId, request: RequestId) {
        self.line.remove(owner, request);
        self.interest.remove(owner, request);
    }

    /// The state of a bump's new request, which may hold the lock by now.
    fn released_again(&self, turn: &Turn<'_>, place: &Place<'_>) -> Released {
        Released::Again(match self.held_by(place.owner, place.request) {
            Some(holder) => holder.granted(turn.now),
            None => self.queued(turn, place),
        })
    }

    fn queued(&self, turn: &Turn<'_>, place: &Place<'_>) -> Acquired {
        let (rank, recheck_in) = self.rank_and_recheck_in(turn, place);
        let ticket = self.line.ticket_of(place.owner, place.request).unwrap_or(0);
        Acquired::Queued { rank, recheck_in, ticket, latest: turn.last_number() }
    }

    /// The rank of a present request, and when it looks without a wake-up: when the hold ends, if it is first in line, or the
    /// first of its client and its next heartbeat would be later than that. For all waiters ahead may have died with the
    /// holder. While the line rests: after that.
    fn rank_and_recheck_in(&self, turn: &Turn<'_>, place: &Place<'_>) -> (u64, Duration) {
        let left = self.lease_left(turn.now);
        let rank = self.line.rank_of(place.owner, place.request).unwrap_or(0);
        let looks =
            rank == 0 || 3 * left < place.ttl && self.line.first_of_call(turn.call) == Some(place.request);
        let when = match self.holder {
            None if !self.line.rests_for(turn.now).is_zero() => self.line.rests_for(turn.now),
            _ => left.saturating_add(PAST_THE_END),
        };
        (rank, if looks { when } else { Duration::MAX })
    }

    /// What is left of the holder's lease; zero if the lock is free.
    fn lease_left(&self, now: Moment) -> Duration {
        self.holder.as_ref().map_or(Duration::ZERO, |holder| holder.left(now))
    }

    /// The hold of this very request.
    fn held_by(&self, owner: &OwnerId, request: RequestId) -> Option<&KeptHold> {
        self.holder.as_ref().filter(|holder| holder.is_of(owner, request))
    }

    /// This very hold, by request and token.
    fn hold_as(&mut self, hold: &Hold<'_>) -> Option<&mut KeptHold> {
        let is_it =
            |holder: &&mut KeptHold| holder.token == hold.token && holder.is_of(hold.owner, hold.request);
        self.holder.as_mut().filter(is_it)
    }
}

fn heartbeat_of<'a>(ask: &'a Acquire<'a>, turn: &Turn<'_>) -> Heartbeat<'a> {
    Heartbeat { place: &ask.place, lease: ask.lease, label: Some(ask.label), call: turn.call }
}
