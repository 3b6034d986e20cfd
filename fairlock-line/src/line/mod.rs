//! The line of one lock: places by ticket, those of absent waiters set aside with their tickets kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Place, RequestId, Waiter};

use crate::turn::{Moment, SWEEP_AFTER, Turn};
use crate::wrong::Wrong;

mod clock;
mod encoded;
#[cfg(feature = "model")]
mod parts;
mod ranks;

use clock::LineClock;
#[cfg(feature = "model")]
pub use parts::{ClockParts, LineParts, PlaceParts};
use ranks::Ranks;

/// How many parked places one call checks for silence.
const SWEPT_AT_ONCE: usize = 3;

/// How many kicks are kept.
const KICKS_KEPT: usize = 100;

/// A waiter's position in the line.
pub(crate) struct KeptPlace {
    pub(crate) owner: OwnerId,
    pub(crate) request: RequestId,
    pub(crate) label: Arc<str>,
    /// The units that it waits for.
    pub(crate) takes: u32,
    /// The requested lease.
    pub(crate) lease: Duration,
    /// The last call that refreshed it.
    pub(crate) asked_in: u64,
    joined: Moment,
    /// On the line's clock.
    deadline: Moment,
}

/// What a waiter sends with each acquire and each renewal.
#[derive(Clone, Copy)]
pub(crate) struct Heartbeat<'a> {
    pub(crate) place: &'a Place<'a>,
    pub(crate) lease: Duration,
    /// None in a renewal, which keeps the label.
    pub(crate) label: Option<&'a str>,
    pub(crate) call: u64,
}

/// The places. Each is *present*, or *parked*: absent (overdue, or its client is not subscribed), so out of the way, and back
/// at its ticket with its next heartbeat. One that stays silent for a minute more is removed.
///
/// A waiter sends its ticket with each ask and each heartbeat. An ask restores a place that is gone where it was: that of a stopped
/// waiter whose grant has ended, one that was swept, one that was lost. A heartbeat restores only what was lost: any other place
/// was removed, and the heartbeat may be late.
#[derive(Default)]
pub(crate) struct Line {
    present: BTreeMap<u64, KeptPlace>,
    parked: BTreeMap<u64, KeptPlace>,
    tickets: HashMap<(OwnerId, RequestId), u64>,
    ranks: Ranks,
    clock: LineClock,
    /// The first and the last ticket of this line; 0 before there was one.
    first_ticket: u64,
    last_ticket: u64,
    /// The places that were lost, by ticket, until they come back or their requests end. No line loses any but for a test.
    lost: Vec<(OwnerId, RequestId, u64)>,
    /// On the line's clock. A lost line comes back: no waiter is next before this.
    rests_until: Moment,
    /// The requests whose places an operator removed, each with the last ticket at that time.
    kicked: VecDeque<(OwnerId, RequestId, u64)>,
    /// The last call that swept.
    swept_in: u64,
}

impl Line {
    /// Whether there are no places, not even parked ones.
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Whether there never was a place. (The clock may have moved: that of an empty line judges nothing.)
    pub(crate) fn is_as_new(&self) -> bool {
        self.last_ticket == 0
    }

    /// How many places there are, present and parked.
    pub(crate) fn length(&self) -> u64 {
        self.tickets.len() as u64
    }

    /// A heartbeat of the line: its clock moves.
    pub(crate) fn pulse(&mut self, now: Moment) {
        self.clock.pulse(now);
    }

    /// Nobody could be heard from then on until now.
    pub(crate) fn skip(&mut self, since: Moment, now: Moment) {
        self.clock.skip(since, now);
    }

    /// A place with this time to live was refreshed.
    fn count_ttl(&mut self, ttl: Duration) {
        self.clock.count_ttl(ttl, self.is_empty());
    }

    /// Removes those of the first few parked places that were silent for too long; once a call.
    pub(crate) fn sweep(&mut self, call: u64) {
        if self.parked.is_empty() || self.swept_in == call {
            return;
        }
        self.swept_in = call;
        let is_silent = |place: &KeptPlace| place.deadline.saturating_add(SWEEP_AFTER) < self.clock.value;
        let parked = self.parked.iter().take(SWEPT_AT_ONCE);
        let silent: Vec<u64> =
            parked.filter(|(_, place)| is_silent(place)).map(|(ticket, _)| *ticket).collect();
        for ticket in silent {
            self.take(ticket);
        }
    }

    /// The waiter was heard: its place, if it has one, is present for another time to live.
    pub(crate) fn refresh(&mut self, heartbeat: Heartbeat<'_>, now: Moment) -> bool {
        let Place { owner, request, ttl, .. } = *heartbeat.place;
        let Some(ticket) = self.ticket_of(owner, request) else { return false };
        self.pulse(now);
        self.count_ttl(ttl);
        if let Some(place) = self.parked.remove(&ticket) {
            self.ranks.add(ticket);
            self.present.insert(ticket, place);
        }
        let Some(place) = self.present.get_mut(&ticket) else { return false };
        place.deadline = self.clock.value.saturating_add(ttl);
        place.lease = heartbeat.lease;
        place.asked_in = heartbeat.call;
        if let Some(label) = heartbeat.label.filter(|label| **label != *place.label) {
            place.label = label.into();
        }
        true
    }

    /// Adds a new waiter at the tail. The number is from the sequence of tokens, and greater than all before.
    pub(crate) fn join(&mut self, heartbeat: Heartbeat<'_>, number: u64, now: Moment) {
        if self.last_ticket == 0 {
            (self.first_ticket, self.last_ticket) = (number, number);
        } else {
            self.last_ticket += 1; // dense, for `Ranks`; so it is never ahead of the sequence
        }
        self.insert(heartbeat, self.last_ticket, now);
    }

    /// Whether a waiter without a place gets it back at its ticket. Not above the line's last ticket, which would let newcomers
    /// stand ahead of it. Not if an operator has removed the place since.
    pub(crate) fn may_restore(&self, place: &Place<'_>) -> bool {
        let Place { owner, request, ticket, .. } = *place;
        let is_kicked = |(kicked, its_request, last): &(OwnerId, RequestId, u64)| {
            *its_request == request && kicked == owner && ticket <= *last
        };
        ticket > 0
            && (self.first_ticket..=self.last_ticket).contains(&ticket)
            && !self.present.contains_key(&ticket)
            && !self.parked.contains_key(&ticket)
            && !self.kicked.iter().any(is_kicked)
    }

    /// Restores a place at its ticket. Where it was lost, others were, which may have stood ahead. So the line rests for the place's
    /// time to live: a waiter that is not heard by then is absent, as in any line.
    pub(crate) fn restore(&mut self, heartbeat: Heartbeat<'_>, now: Moment) {
        self.pulse(now);
        let Place { ticket, ttl, .. } = *heartbeat.place;
        if self.was_lost(heartbeat.place) && self.clock.value >= self.rests_until {
            self.rests_until = self.clock.value.saturating_add(ttl);
        }
        self.insert(heartbeat, ticket, now);
    }

    /// Whether this place was lost, and neither has come back nor ended.
    pub(crate) fn was_lost(&self, place: &Place<'_>) -> bool {
        let is_it = |(owner, request, ticket): &(OwnerId, RequestId, u64)| {
            *ticket == place.ticket && *request == place.request && owner == place.owner
        };
        self.lost.iter().any(is_it)
    }

    fn find_again(&mut self, owner: &OwnerId, request: RequestId) {
        self.lost.retain(|(lost, its_request, _)| *its_request != request || lost != owner);
    }

    /// For how much longer no waiter is next, since a lost line comes back.
    pub(crate) fn rests_for(&self, now: Moment) -> Duration {
        if self.is_empty() {
            return Duration::ZERO;
        }
        self.rests_until.saturating_sub(self.clock.at(now))
    }

    fn insert(&mut self, heartbeat: Heartbeat<'_>, ticket: u64, now: Moment) {
        self.pulse(now);
        let Place { owner, request, ttl, takes, .. } = *heartbeat.place;
        self.find_again(owner, request);
        self.count_ttl(ttl);
        self.tickets.insert((owner.clone(), request), ticket);
        self.ranks.add(ticket);
        let place = KeptPlace {
            owner: owner.clone(),
            request,
            takes,
            label: heartbeat.label.unwrap_or_default().into(),
            lease: heartbeat.lease,
            asked_in: heartbeat.call,
            joined: now,
            deadline: self.clock.value.saturating_add(ttl),
        };
        self.present.insert(ticket, place);
    }

    /// An operator removes a place: it is not restored.
    pub(crate) fn kick(&mut self, owner: &OwnerId, request: RequestId) {
        self.leave(owner, request);
        self.kicked.push_back((owner.clone(), request, self.last_ticket));
        if self.kicked.len() > KICKS_KEPT {
            self.kicked.pop_front();
        }
    }

    /// A test makes all places vanish.
    pub(crate) fn lose(&mut self) {
        let places = self.present.iter().chain(&self.parked);
        self.lost.extend(places.map(|(ticket, place)| (place.owner.clone(), place.request, *ticket)));
        self.lost.sort_by_key(|(_, _, ticket)| *ticket);
        self.present.clear();
        self.parked.clear();
        self.tickets.clear();
        self.ranks = Ranks::default();
    }

    /// The request ends. A late heartbeat finds nothing to bring back.
    pub(crate) fn leave(&mut self, owner: &OwnerId, request: RequestId) {
        self.find_again(owner, request);
        self.remove(owner, request);
    }

    /// Removes the place of this request, if it has one.
    pub(crate) fn remove(&mut self, owner: &OwnerId, request: RequestId) {
        if let Some(ticket) = self.ticket_of(owner, request) {
            self.take(ticket);
        }
    }

    /// The ticket of the first waiter that counts with this many free units, and the units that it waits for. Absent waiters ahead
    /// of it are parked, so that no later call walks past them again.
    pub(crate) fn first_present(&mut self, turn: &Turn<'_>, free: u32) -> Option<(u64, u32)> {
        const NONE_FITS: (u64, u32) = (0, u32::MAX);
        // It learns of a grant by the answer, or by a message.
        let is_reachable =
            |place: &KeptPlace| place.asked_in == turn.call || (turn.is_listening)(&place.owner);
        let clock = self.clock.at(turn.now);
        let mut passed = 0; // by a wrong rule alone
        while let Some((&ticket, place)) = self.present.range(passed..).next() {
            let (takes, fits) = (place.takes, place.takes <= free);
            let counts =
                self.counts(clock, place, fits || turn.is(Wrong::DeafBlockerParkedAtOnce), is_reachable);
            if counts && !fits && turn.is(Wrong::SmallerPasses) {
                passed = ticket + 1;
            } else if counts || !fits && turn.is(Wrong::BlockerNeverParked) {
                return Some((ticket, takes));
            } else if turn.is(Wrong::DeadHeadIsWaitedFor) {
                return Some(NONE_FITS);
            } else {
                self.park(ticket);
                if turn.is(Wrong::NewcomerBargesAfterManyAbsent) {
                    return None;
                }
            }
        }
        (passed > 0).then_some(NONE_FITS)
    }

    /// All waiters are absent, and the name becomes another lock.
    pub(crate) fn park_all(&mut self) {
        while let Some((&ticket, _)) = self.present.first_key_value() {
            self.park(ticket);
        }
    }

    fn park(&mut self, ticket: u64) {
        if let Some(place) = self.present.remove(&ticket) {
            self.ranks.remove(ticket);
            self.parked.insert(ticket, place);
        }
    }

    /// The waiter at the head, whether it can be reached or not.
    pub(crate) fn first(&self) -> Option<&OwnerId> {
        self.present.first_key_value().map(|(_, place)| &place.owner)
    }

    /// The owners at the head, whether they can be reached or not.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &OwnerId> {
        self.present.values().map(|place| &place.owner)
    }

    /// Whether any waiter is present. Parks none.
    pub(crate) fn has_present(&self, now: Moment, is_reachable: impl Fn(&KeptPlace) -> bool) -> bool {
        let clock = self.clock.at(now);
        self.present.values().any(|place| self.counts(clock, place, true, &is_reachable))
    }

    /// A waiter that fits has to be present. All others wait for the first waiter that does not fit. So it counts without a
    /// subscription, too, until it has been silent for half a place's time: a connection that breaks for a moment must not cost
    /// its turn.
    fn counts(
        &self,
        clock: Moment,
        place: &KeptPlace,
        fits: bool,
        is_reachable: impl Fn(&KeptPlace) -> bool,
    ) -> bool {
        clock < place.deadline && is_reachable(place)
            || !fits && clock.saturating_add(self.clock.half_ttl()) < place.deadline
    }

    /// Whether the request has a place, present or parked.
    pub(crate) fn has(&self, owner: &OwnerId, request: RequestId) -> bool {
        self.ticket_of(owner, request).is_some()
    }

    /// The first request that this call refreshed.
    pub(crate) fn first_of_call(&self, call: u64) -> Option<RequestId> {
        self.present.values().find(|place| place.asked_in == call).map(|place| place.request)
    }

    /// Removes a place that is granted the lock.
    pub(crate) fn serve(&mut self, ticket: u64) -> Option<KeptPlace> {
        self.take(ticket)
    }

    fn take(&mut self, ticket: u64) -> Option<KeptPlace> {
        let place = match self.present.remove(&ticket) {
            Some(place) => {
                self.ranks.remove(ticket);
                place
            }
            None => self.parked.remove(&ticket)?,
        };
        self.tickets.remove(&(place.owner.clone(), place.request));
        // A rest ends with the last place.
        if self.is_empty() {
            self.rests_until = Moment::ZERO;
        }
        Some(place)
    }

    /// The rest of the place's time.
    pub(crate) fn left_of(&self, place: &KeptPlace) -> Duration {
        place.deadline.saturating_sub(self.clock.value)
    }

    /// How many present waiters are ahead of this request; none if it is not present itself.
    pub(crate) fn rank_of(&self, owner: &OwnerId, request: RequestId) -> Option<u64> {
        let ticket = self.ticket_of(owner, request).filter(|ticket| self.present.contains_key(ticket))?;
        let (before, first_of_block) = self.ranks.before_block_of(ticket);
        Some(before + self.present.range(first_of_block..ticket).count() as u64)
    }

    /// How many waiters are known to be absent: the parked ones, and those of the first `most` others that are silent.
    pub(crate) fn absent(&self, now: Moment, most: u64) -> u64 {
        let clock = self.clock.seen_at(now);
        let examined = self.present.values().take(count(most));
        let (examined, silent) = examined.fold((0, 0), |(examined, silent), place| {
            (examined + 1, silent + u64::from(place.deadline <= clock))
        });
        if examined > 0 && silent == examined && self.clock.is_silent(now) {
            return self.length();
        }
        self.parked.len() as u64 + silent
    }

    /// A part of the line as an operator sees it: waiters that are not parked by ticket, then parked ones.
    pub(crate) fn inspect(&self, now: Moment, part: Range<u64>) -> Vec<Waiter> {
        let clock = self.clock.seen_at(now);
        let waiter = |(place, is_parked): (&KeptPlace, bool)| {
            let mut waiter = Waiter::new(place.owner.clone());
            waiter.request = Some(place.request);
            waiter.takes = place.takes;
            waiter.waiting = Some(now.saturating_sub(place.joined));
            let left = place.deadline.saturating_sub(clock);
            waiter.place_left = Some(if is_parked { Duration::ZERO } else { left });
            waiter.label = (!place.label.is_empty()).then(|| String::from(&*place.label));
            waiter
        };
        let (ahead, first) = self.ranks.block_at(part.start);
        let present = self.present.range(first..).map(|(_, place)| (place, false));
        let present = present.skip(count(part.start - ahead));
        let parked = self.parked.values().map(|place| (place, true));
        let parked = parked.skip(count(part.start.saturating_sub(self.present.len() as u64)));
        let wanted = part.end.saturating_sub(part.start);
        present.chain(parked).take(count(wanted)).map(waiter).collect()
    }

    /// From when on all its waiters are dead, if none is heard until then.
    pub(crate) fn over_at(&self) -> Moment {
        if self.is_empty() { Moment::ZERO } else { self.clock.over_at() }
    }

    /// The ticket of a place.
    pub(crate) fn ticket_of(&self, owner: &OwnerId, request: RequestId) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.tickets.get(&(owner.clone(), request)).copied()
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
