//! One lock: who holds it, who waits for it, and who is next. Pure: the time is given.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, ForceReleased, Hold, HoldCountSet, Holder, LockState, Place, Released, Renew, Renewal,
    RequestId, Wait, Withdrawn,
};
use fairlock_core::{FencingToken, LockKind, OwnerId};

use crate::interest::Interest;
use crate::line::{Line, Sign};
use crate::store::{Moment, Turn};
use crate::wake_ups::WakeUp;

/// What the first in line waits beyond the end of a hold before he looks, so that it has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// One owner's possession of the lock, named by owner, request and token.
struct KeptHold {
    owner: OwnerId,
    request: RequestId,
    token: FencingToken,
    holds: u32,
    since: Moment,
    ends: Moment,
    label: Arc<str>,
}

impl KeptHold {
    fn is_of(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.request == request && self.owner == *owner
    }

    fn left(&self, now: Moment) -> Duration {
        self.ends.saturating_sub(now)
    }
}

/// The state of one lock.
///
/// | holder | line, interest | what the next operation on the lock does |
/// | --- | --- | --- |
/// | none | somebody present | hands on (only after a `lose_hold`, or when all were absent) |
/// | none | all parked, or interest only | leaves it free |
/// | its lease is over | any | forgets the holder, then as above |
/// | holds | any | nothing: the line waits |
///
/// A fair and a plain handle of one name share the holder. The line comes first, whoever releases: nobody barges.
#[derive(Default)]
pub(crate) struct LockEntry {
    holder: Option<KeptHold>,
    line: Line,
    interest: Interest,
}

impl LockEntry {
    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.line.is_empty() && self.interest.is_empty()
    }

    /// Whether whoever held it or waited for it has been gone for long.
    pub(crate) fn is_abandoned(&self, now: Moment) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder.ends <= now)
            && self.line.is_abandoned(now)
            && self.interest.is_abandoned(now)
    }

    pub(crate) fn acquire(&mut self, turn: &mut Turn<'_>, ask: &Acquire<'_>) -> Acquired {
        self.look(turn);
        let Place { lock, owner, request, wait, .. } = ask.place;
        // That the owner holds it under another request does not matter: which of the two is the late one can't be known.
        if let Some(holder) = self.holder.as_ref().filter(|holder| holder.is_of(owner, request)) {
            return granted(holder, turn.now); // a repeat
        }
        let sign = sign_of(ask, turn);
        let stands = wait != Wait::No && lock.kind == LockKind::Fair;
        let in_line = self.line.hear(sign, turn.now) || stands && self.put_back(turn, sign);
        let free = self.holder.is_none();
        self.look_after_line(turn);
        match &self.holder {
            None if !self.line.rests_for(turn.now).is_zero() => {}
            // Nobody who is present waits, not even the caller: he would have been the one.
            None => return self.grant(turn, ask),
            Some(holder) if holder.is_of(owner, request) => return granted(holder, turn.now),
            Some(_) => {}
        }
        if stands {
            if !in_line {
                self.line.join(sign, turn.mint().get(), turn.now);
            }
            // A newcomer to a held lock has no time for that.
            if in_line || free {
                self.line.forget_the_silent(turn.call);
            }
            return self.queued(turn, &ask.place);
        }
        match wait {
            Wait::No => self.leave(owner, request),
            Wait::UpTo(_) | Wait::Forever => self.interest.hear(&ask.place, turn.now),
        }
        Acquired::Busy { recheck_in: self.lease_left(turn.now) }
    }

    pub(crate) fn set_hold_count(
        &mut self,
        turn: &mut Turn<'_>,
        hold: &Hold<'_>,
        holds: u32,
    ) -> HoldCountSet {
        self.look(turn);
        if let Some(holder) = self.holder_as(hold) {
            holder.holds = holds;
            return HoldCountSet::Set;
        }
        self.look_after_line(turn);
        HoldCountSet::Lost
    }

    pub(crate) fn release(
        &mut self,
        turn: &mut Turn<'_>,
        hold: &Hold<'_>,
        again: Option<&Acquire<'_>>,
    ) -> Released {
        self.look(turn);
        if self.holder_as(hold).is_none() {
            // A late repeat of its ask may have come here after its hold was over.
            if self.line.has(hold.owner, hold.request) {
                self.line.pulse(turn.now);
                self.line.leave(hold.owner, hold.request);
            }
            // Perhaps a repeat: then the new request is heard of again, before the lock is handed on.
            let in_line = again.is_some_and(|ask| self.line.hear(sign_of(ask, turn), turn.now));
            self.look_after_line(turn);
            return match again {
                Some(ask) if in_line || self.is_held_by(ask.place.owner, ask.place.request) => {
                    self.stands(turn, &ask.place)
                }
                _ => Released::NotHeld,
            };
        }
        if let Some(ask) = again {
            // A plain lock has no line to stand behind.
            if ask.place.lock.kind == LockKind::Plain || !self.is_anyone_present(turn) {
                return Released::Kept;
            }
            self.holder = None;
            // Into the line before the lock is handed on, and behind the one that gets it.
            if !self.line.hear(sign_of(ask, turn), turn.now) {
                self.line.join(sign_of(ask, turn), turn.mint().get(), turn.now);
            }
            self.free(turn);
            return self.stands(turn, &ask.place);
        }
        self.holder = None;
        self.free(turn);
        Released::Released
    }

    /// The first half of a renewal: the item has spoken.
    pub(crate) fn hear(&mut self, turn: &mut Turn<'_>, item: &Renew<'_>) {
        self.look(turn);
        match item {
            Renew::Hold { hold, holds, lease } => {
                if let Some(holder) = self.holder_as(hold) {
                    // Never shorter: a renewal that was sent earlier can arrive later.
                    holder.ends = holder.ends.max(turn.now.saturating_add(*lease));
                    holder.holds = *holds;
                }
            }
            Renew::Place { place, lease } => match place.lock.kind {
                LockKind::Fair => {
                    self.line.pulse(turn.now);
                    self.line.count_ttl(place.ttl);
                    let sign = Sign { place, lease: *lease, label: None, call: turn.call };
                    // What may have been granted the lock is not put back by a heartbeat: this one may have crossed the
                    // release of that very hold. Its client asks, if it still waits.
                    if !self.line.hear(sign, turn.now)
                        && !self.is_held_by(place.owner, place.request)
                        && !self.line.was_served(place.ticket)
                    {
                        self.put_back(turn, sign);
                    }
                }
                LockKind::Plain => self.interest.hear(place, turn.now),
            },
        }
    }

    /// The second half of a renewal: what has become of the item, now that all have spoken.
    pub(crate) fn answer(&mut self, turn: &mut Turn<'_>, item: &Renew<'_>) -> Renewal {
        let place = match item {
            // About the hold only: those who wait have their own heartbeats, which hand on.
            Renew::Hold { hold, .. } if self.holder_as(hold).is_some() => return Renewal::Renewed,
            Renew::Hold { .. } => return Renewal::Lost,
            Renew::Place { place, .. } => place,
        };
        self.look_after_line(turn);
        self.line.forget_the_silent(turn.call);
        if let Some(holder) = self.holder.as_ref().filter(|holder| holder.is_of(place.owner, place.request)) {
            let (token, lease) = (holder.token, holder.left(turn.now));
            self.interest.end(place.owner, place.request);
            return Renewal::Granted { token, lease };
        }
        match place.lock.kind {
            LockKind::Plain => Renewal::Waiting { rank: 0, recheck_in: self.lease_left(turn.now), latest: 0 },
            LockKind::Fair if self.line.rank_of(place.owner, place.request).is_none() => Renewal::Lost,
            LockKind::Fair => {
                let (rank, recheck_in) = self.rank_and_look(turn, place);
                Renewal::Waiting { rank, recheck_in, latest: turn.latest() }
            }
        }
    }

    pub(crate) fn withdraw(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.look(turn);
        self.pulse_if_free(turn.now);
        // Before anything is handed on: a lock that is free must not go to the one who leaves.
        self.leave(place.owner, place.request);
        if let Some(holder) = self.holder.as_ref().filter(|holder| holder.is_of(place.owner, place.request)) {
            return Withdrawn::WasGranted { token: holder.token, lease: holder.left(turn.now) };
        }
        self.hand_on(turn);
        Withdrawn::Left
    }

    pub(crate) fn kick(&mut self, turn: &mut Turn<'_>, place: &Place<'_>) -> Withdrawn {
        self.look(turn);
        if !self.line.is_empty() && !self.is_held_by(place.owner, place.request) {
            self.line.pulse(turn.now);
            self.line.kick(place.owner, place.request);
        }
        self.withdraw(turn, place)
    }

    pub(crate) fn force_release(&mut self, turn: &mut Turn<'_>) -> ForceReleased {
        self.look(turn);
        // Looked at before anything is handed on: what the caller saw held may just have ended by itself, and the
        // one who is next must not pay for it.
        let Some(holder) = self.holder.take() else {
            self.look_after_line(turn);
            return ForceReleased::NotHeld;
        };
        let (lock, owner, token) = (turn.lock.clone(), holder.owner.clone(), holder.token);
        turn.wake_ups.tell(&holder.owner, WakeUp::Taken { lock, owner, token });
        self.free(turn);
        ForceReleased::Taken
    }

    pub(crate) fn inspect(&self, now: Moment, part: Range<u64>) -> LockState {
        let mut state = LockState::default();
        state.line_length = self.line.length();
        state.line = self.line.inspect(now, part);
        state.holder = self.holder.as_ref().filter(|holder| now < holder.ends).map(|kept| {
            let mut holder = Holder::new(kept.owner.clone(), kept.holds);
            holder.token = Some(kept.token);
            holder.lease_left = Some(kept.left(now));
            holder.held_for = Some(now.saturating_sub(kept.since));
            holder.label = (!kept.label.is_empty()).then(|| String::from(&*kept.label));
            holder
        });
        state
    }

    /// A test makes the hold vanish: no wake-up, and the line learns of it by looking.
    pub(crate) fn lose_hold(&mut self) {
        self.holder = None;
    }

    /// A test makes the places vanish.
    pub(crate) fn lose_line(&mut self) {
        self.line.lose();
    }

    /// The first step of every operation: a hold whose lease is over is no hold.
    fn look(&mut self, turn: &Turn<'_>) {
        self.holder.take_if(|holder| holder.ends <= turn.now);
    }

    /// Whoever finds that a hold is over and others wait is a sign of life, too.
    fn pulse_if_free(&mut self, now: Moment) {
        if self.holder.is_none() && !self.line.is_empty() {
            self.line.pulse(now);
        }
    }

    fn look_after_line(&mut self, turn: &mut Turn<'_>) {
        self.pulse_if_free(turn.now);
        self.hand_on(turn);
    }

    /// If the lock is free: whoever is first in line, present, and would learn of it, becomes the holder. When
    /// there is nobody it stays free.
    fn hand_on(&mut self, turn: &mut Turn<'_>) {
        if self.holder.is_some() || !self.line.rests_for(turn.now).is_zero() {
            return;
        }
        let Some(ticket) = self.first_in_line(turn) else { return };
        self.line.pulse(turn.now);
        let Some(place) = self.line.serve(ticket) else { return };
        // What is left of the place: so the waiter knows for how long a grant is good that he is only told of,
        // and the grant of one who has died in the meantime is over as soon as his place would have been.
        let lease = place.lease.min(self.line.left_of(&place));
        let token = turn.mint();
        if place.spoke_in != turn.call {
            let (lock, owner) = (turn.lock.clone(), place.owner.clone());
            turn.wake_ups.tell(&place.owner, WakeUp::Granted { lock, owner, request: place.request, token });
        }
        self.holder = Some(KeptHold {
            owner: place.owner,
            request: place.request,
            token,
            holds: 1,
            since: turn.now,
            ends: turn.now.saturating_add(lease),
            label: place.label,
        });
    }

    /// Puts a waiter back that has no place, if its ticket is believed. The number that is drawn for it is later than any
    /// grant of the place that is gone, and so tells its client which pushes are old.
    fn put_back(&mut self, turn: &mut Turn<'_>, sign: Sign<'_>) -> bool {
        let is_believed = self.line.believes(sign.place);
        if is_believed {
            turn.mint();
            self.line.put_back(sign, turn.now);
        }
        is_believed
    }

    /// Who speaks in this call learns of a grant by the answer, so he need not listen.
    fn first_in_line(&mut self, turn: &Turn<'_>) -> Option<u64> {
        self.line.first(turn.now, |place| place.spoke_in == turn.call || turn.wake_ups.hears(&place.owner))
    }

    /// The holder has gone: hands on, or has those told who wait for a plain lock.
    fn free(&mut self, turn: &mut Turn<'_>) {
        self.hand_on(turn);
        if self.holder.is_some() || self.interest.is_empty() {
            return;
        }
        for owner in self.interest.one_of_each_client(turn.now) {
            turn.wake_ups.tell(&owner, WakeUp::Recheck { lock: turn.lock.clone() });
        }
    }

    /// Makes the caller the holder, past a line in which nobody is present (or which is behind him: he holds it).
    fn grant(&mut self, turn: &mut Turn<'_>, ask: &Acquire<'_>) -> Acquired {
        let Place { owner, request, .. } = ask.place;
        self.leave(owner, request);
        self.line.pulse(turn.now);
        let token = turn.mint();
        self.holder = Some(KeptHold {
            owner: owner.clone(),
            request,
            token,
            holds: 1,
            since: turn.now,
            ends: turn.now.saturating_add(ask.lease),
            label: turn.label(ask.label),
        });
        Acquired::Granted { token, lease: ask.lease }
    }

    fn leave(&mut self, owner: &OwnerId, request: RequestId) {
        self.line.leave(owner, request);
        self.interest.end(owner, request);
    }

    /// Whether somebody in line would get the lock if it were free.
    fn is_anyone_present(&self, turn: &Turn<'_>) -> bool {
        self.line.is_anyone_present(turn.now, |place| turn.wake_ups.hears(&place.owner))
    }

    /// How the request stands that was asked for with a release, or with a repeat of it: it may hold the lock by now.
    fn stands(&self, turn: &Turn<'_>, place: &Place<'_>) -> Released {
        Released::Again(match &self.holder {
            Some(holder) if holder.is_of(place.owner, place.request) => granted(holder, turn.now),
            _ => self.queued(turn, place),
        })
    }

    fn queued(&self, turn: &Turn<'_>, place: &Place<'_>) -> Acquired {
        let (rank, recheck_in) = self.rank_and_look(turn, place);
        let ticket = self.line.ticket_of(place.owner, place.request).unwrap_or(0);
        Acquired::Queued { rank, recheck_in, ticket, latest: turn.latest() }
    }

    /// The rank of a request that is present in the line, and when it should look without being told: when the hold is
    /// over, if it is the first, or the first of its client and its next heartbeat would be later than that. For all who
    /// stand before it may have died with the holder. While the line rests, it looks after that.
    fn rank_and_look(&self, turn: &Turn<'_>, place: &Place<'_>) -> (u64, Duration) {
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

    /// What is left of the holder's lease; zero when the lock is free.
    fn lease_left(&self, now: Moment) -> Duration {
        self.holder.as_ref().map_or(Duration::ZERO, |holder| holder.left(now))
    }

    fn is_held_by(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_of(owner, request))
    }

    fn holder_as(&mut self, hold: &Hold<'_>) -> Option<&mut KeptHold> {
        let is_it =
            |holder: &&mut KeptHold| holder.token == hold.token && holder.is_of(hold.owner, hold.request);
        self.holder.as_mut().filter(is_it)
    }
}

fn granted(holder: &KeptHold, now: Moment) -> Acquired {
    Acquired::Granted { token: holder.token, lease: holder.left(now) }
}

fn sign_of<'a>(ask: &'a Acquire<'a>, turn: &Turn<'_>) -> Sign<'a> {
    Sign { place: &ask.place, lease: ask.lease, label: Some(ask.label), call: turn.call }
}
