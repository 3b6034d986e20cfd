//! Who gets units that are free.

use fairlock_core::backend::{Acquire, Acquired, Place};

use super::LockEntry;
use super::kept_hold::KeptHold;
use crate::line::Heartbeat;
use crate::turn::{Moment, Turn};
use crate::wake_up::News;
use crate::wrong::Wrong;

/// Whether units that are left may go to a request that does not stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// No present waiter is before it.
    ForANewcomer,
    /// There are none, or a waiter is before it.
    ForTheLine,
}

impl LockEntry {
    /// A call that finds units free and a line waiting is a heartbeat of the line, too.
    pub(super) fn pulse_if_free(&mut self, now: Moment) {
        if self.free() > 0 {
            self.pulse(now);
        }
    }

    /// So are a heartbeat, and a call that ends a hold or a wait. The clock of an empty line moves only when a waiter comes or
    /// the lock is granted.
    pub(super) fn pulse(&mut self, now: Moment) {
        if !self.line.is_empty() {
            self.line.pulse(now);
        }
    }

    pub(super) fn pulse_and_hand_on(&mut self, turn: &mut Turn<'_>) -> Left {
        self.pulse_if_free(turn.now);
        self.hand_on(turn)
    }

    /// Grants all present waiters at the head of the line that fit, up to the first that does not: none passes it. A granted
    /// waiter gets a wake-up, unless this call is its own: then the answer tells it, and it need not be subscribed.
    pub(super) fn hand_on(&mut self, turn: &mut Turn<'_>) -> Left {
        loop {
            let free = self.free();
            if free == 0 {
                return Left::ForTheLine;
            }
            if self.line.is_empty() {
                return Left::ForANewcomer;
            }
            if self.kind.is_shared() {
                self.line.pulse(turn.now); // units may be free for long, beside a waiter that does not fit
            }
            if !self.line.rests_for(turn.now).is_zero() {
                return Left::ForTheLine;
            }
            // An absent one is parked, also if it does not fit: a dead waiter blocks none for ever.
            let first = self.line.first_present(turn, free);
            let Some((ticket, takes)) = first else { return Left::ForANewcomer };
            if takes > free {
                return Left::ForTheLine;
            }
            self.serve(turn, ticket);
            if turn.is(Wrong::OneGrantAScript) {
                return Left::ForTheLine;
            }
        }
    }

    /// Makes a waiter a holder.
    fn serve(&mut self, turn: &mut Turn<'_>, ticket: u64) {
        self.line.pulse(turn.now);
        let Some(place) = self.line.serve(ticket) else { return };
        // For the rest of the place's time. So the waiter knows the validity of a pushed grant without asking, and a dead one
        // delays the others no longer than its place would have.
        let lease = place.lease.min(self.line.left_of(&place));
        let token = turn.next_token();
        if place.asked_in != turn.call {
            turn.tell(&place.owner, News::Granted { request: place.request, token });
        }
        self.holds.add(KeptHold {
            owner: place.owner,
            request: place.request,
            token,
            takes: place.takes,
            holds: 1,
            since: turn.now,
            ends: turn.now.saturating_add(lease),
            label: place.label,
        });
    }

    /// A holder has gone: hands its units on, or wakes the waiters for a plain lock.
    pub(super) fn hand_on_or_wake_plain(&mut self, turn: &mut Turn<'_>) {
        self.hand_on(turn);
        if self.free() == 0 || self.interest.is_empty() {
            return;
        }
        self.wake_plain(turn);
    }

    /// Tells the waiters for a plain lock to look.
    pub(super) fn wake_plain(&mut self, turn: &mut Turn<'_>) {
        for owner in self.interest.one_of_each_client(turn.now) {
            turn.tell(&owner, News::RecheckAny);
        }
    }

    /// Makes the caller a holder. No waiter is present, and it fits.
    pub(super) fn grant(&mut self, turn: &mut Turn<'_>, ask: &Acquire<'_>) -> Acquired {
        let Place { owner, request, takes, .. } = ask.place;
        self.remove(owner, request);
        self.line.pulse(turn.now);
        let token = turn.next_token();
        self.holds.add(KeptHold {
            owner: owner.clone(),
            request,
            token,
            takes,
            holds: 1,
            since: turn.now,
            ends: turn.now.saturating_add(ask.lease),
            label: turn.label(ask.label),
        });
        Acquired::Granted { token, lease: ask.lease }
    }

    /// Restores the place of a waiter that has none, if its ticket allows it. The number that is drawn is later than any grant
    /// of the former place, and so tells which pushes are old.
    pub(super) fn restore(&mut self, turn: &mut Turn<'_>, heartbeat: Heartbeat<'_>) -> bool {
        let may_restore = self.line.may_restore(heartbeat.place);
        if may_restore {
            turn.next_number();
            self.line.restore(heartbeat, turn.now);
        }
        may_restore
    }
}
