//! The waiters of one lock: places by ticket and the queue's own clock, as in `lib/queue.lua` of the Redis backend; and the requests that
//! wait for a plain lock.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Place, RequestId, Waiter};

use crate::context::Moment;

mod encoded;

use encoded::Text;
#[cfg(feature = "model")]
pub use encoded::{ClockParts, PlaceParts, QueueParts};

/// A waiter that is silent for so much longer than its time to live is dead.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// A waiter's position in the queue.
#[derive(Clone)]
pub(crate) struct QueuedPlace {
    pub(crate) owner: Text<OwnerId>,
    pub(crate) request: RequestId,
    pub(crate) label: Text<Arc<str>>,
    /// The units that the waiter wants.
    pub(crate) units: u32,
    /// The capacity that the waiter names: clients of one semaphore may name different numbers of permits.
    pub(crate) capacity: u32,
    /// The requested lease.
    pub(crate) lease: Duration,
    /// The last operation in which the waiter was heard.
    pub(crate) asked_in: u64,
    /// Whether the waiter has named this ticket, and so knows it.
    pub(crate) is_heard: bool,
    joined: Moment,
    /// When the place's time is over, on the queue's clock.
    pub(crate) deadline: Moment,
}

/// What a waiter sends with each acquire and each renewal.
#[derive(Clone, Copy)]
pub(crate) struct Heartbeat<'a> {
    pub(crate) place: &'a Place<'a>,
    pub(crate) lease: Duration,
    /// The label; none in a renewal, which keeps the label.
    pub(crate) label: Option<&'a str>,
    pub(crate) call: u64,
}

/// The places. A place whose waiter is absent at its turn leaves. Each ask names the waiter's ticket. If the place has left, was
/// lost, or was granted and ended while the waiter stood still, the ask restores the place at this ticket.
#[derive(Default)]
pub(crate) struct Queue {
    /// In the order of their tickets, without an index: a queue is read and written as a whole more often than it is searched. A place is
    /// found by the ticket that its ask names, or else by a walk.
    places: VecDeque<(u64, QueuedPlace)>,
    clock: Clock,
    /// Tickets up to this one have had their turn: they were granted the lock, or were absent then.
    served: u64,
    /// The end of the queue's rest, on its clock: no waiter is next before, since a lost queue comes back.
    rests_until: Moment,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn length(&self) -> u64 {
        self.places.len() as u64
    }

    /// All places in order, with their tickets.
    pub(crate) fn places(&self) -> impl DoubleEndedIterator<Item = (u64, &QueuedPlace)> {
        self.places.iter().map(|(ticket, place)| (*ticket, place))
    }

    /// Begins an operation on the queue: its clock moves, and a rest ends with the last place. `last`: the last number of the
    /// sequence. Tickets up to this number belonged to an earlier queue, if this one is new.
    pub(crate) fn pulse(&mut self, now: Moment, last: u64) {
        self.clock.pulse(now);
        if self.is_empty() {
            self.rests_until = Moment::ZERO;
            self.served = if self.served == 0 { last } else { self.served };
        }
    }

    /// Nobody could be heard from then until now.
    pub(crate) fn skip(&mut self, since: Moment, now: Moment) {
        self.clock.skip(since, now);
    }

    /// How long ago the last operation on the queue was. Zero while nobody waits.
    pub(crate) fn silent_for(&self, now: Moment) -> Duration {
        if self.is_empty() { Duration::ZERO } else { now.saturating_sub(self.clock.pulse) }
    }

    /// Takes note of the TTL in a waiter's ask. That of a request that leaves no place does not count: no place depends on it.
    pub(crate) fn count_ttl(&mut self, ttl: Duration) {
        self.clock.count_ttl(ttl, self.is_empty());
    }

    /// The clock, as of the operation that has moved it.
    pub(crate) fn clock(&self) -> Moment {
        self.clock.value
    }

    /// Hears the waiter: its place, if there is one, lasts for another time to live.
    pub(crate) fn hear(&mut self, heartbeat: Heartbeat<'_>) {
        let Place { owner, request, ttl, ticket: named, .. } = *heartbeat.place;
        let Some(at) = self.index_of(owner, request, named) else { return };
        self.count_ttl(ttl);
        let clock = self.clock();
        let (ticket, place) = &mut self.places[at];
        place.deadline = clock.saturating_add(ttl);
        place.lease = heartbeat.lease;
        place.asked_in = heartbeat.call;
        place.is_heard |= named == *ticket;
        if let Some(label) = heartbeat.label.filter(|label| label.as_bytes() != place.label.bytes()) {
            place.label = Text::new(label.into());
        }
    }

    /// A new place for a waiter that is heard now.
    pub(crate) fn new_place(&self, heartbeat: Heartbeat<'_>, label: Arc<str>, now: Moment) -> QueuedPlace {
        let Place { lock, owner, request, ttl, units, .. } = *heartbeat.place;
        QueuedPlace {
            owner: Text::new(owner.clone()),
            request,
            units,
            capacity: lock.kind.capacity(),
            label: Text::new(label),
            lease: heartbeat.lease,
            asked_in: heartbeat.call,
            is_heard: false,
            joined: now,
            deadline: self.clock().saturating_add(ttl),
        }
    }

    /// Whether no place has this ticket.
    pub(crate) fn is_free(&self, ticket: u64) -> bool {
        self.at(ticket).is_err()
    }

    /// A place is going to be restored at this ticket. If the ticket has not had its turn, the queue was lost, and other waiters
    /// may have stood ahead. So the queue rests for the place's time to live: a waiter that is not heard by then is absent, as in
    /// any queue. The queue rests only once: all tickets up to the last number, which was just drawn, belong to the lost queue.
    pub(crate) fn rest_if_lost(&mut self, ticket: u64, ttl: Duration, last: u64) {
        if ticket > self.served && self.clock() >= self.rests_until {
            self.rests_until = self.clock().saturating_add(ttl);
            self.served = last;
        }
    }

    /// For how much longer no waiter is next, since a lost queue comes back.
    pub(crate) fn rests_for(&self, now: Moment) -> Duration {
        if self.is_empty() { Duration::ZERO } else { self.rests_until.saturating_sub(self.clock.at(now)) }
    }

    /// Tickets up to this one have had their turn.
    pub(crate) fn serve(&mut self, ticket: u64) {
        self.served = self.served.max(ticket);
    }

    pub(crate) fn insert(&mut self, ticket: u64, place: QueuedPlace) {
        match self.at(ticket) {
            Ok(at) => self.places[at].1 = place,
            Err(at) => self.places.insert(at, (ticket, place)),
        }
    }

    pub(crate) fn remove(&mut self, ticket: u64) {
        if let Ok(at) = self.at(ticket) {
            self.places.remove(at);
        }
    }

    /// Sets the capacity of all places.
    pub(crate) fn set_capacities(&mut self, capacity: u32) {
        self.places.iter_mut().for_each(|(_, place)| place.capacity = capacity);
    }

    /// Sets the capacity of the place with this ticket. None if there is no such place, or if its units exceed the capacity.
    pub(crate) fn set_capacity(&mut self, ticket: u64, capacity: u32) -> Option<()> {
        let at = self.at(ticket).ok()?;
        let (_, place) = &mut self.places[at];
        place.capacity = capacity;
        (place.units <= capacity).then_some(())
    }

    /// A test makes all places vanish.
    pub(crate) fn lose(&mut self) {
        self.places.clear();
    }

    /// Whether the waiter was not heard within its place's time.
    pub(crate) fn is_overdue(&self, place: &QueuedPlace, now: Moment) -> bool {
        place.deadline <= self.clock.at(now)
    }

    /// The lease of a grant to a waiter: the rest of the place's time, or the lease that was asked for if that is shorter. So the
    /// waiter knows how long a pushed grant is valid without asking, and a dead waiter delays the others no longer than its place
    /// would have.
    pub(crate) fn lease_of(&self, place: &QueuedPlace) -> Duration {
        place.lease.min(place.deadline.saturating_sub(self.clock()))
    }

    /// Whether the first waiter, which does not fit, counts as present. All others wait for it. Without a subscription it counts until
    /// half of the queue's least TTL is left of its time: a connection that breaks for a moment must not cost its turn.
    pub(crate) fn blocks(&self, place: &QueuedPlace, now: Moment) -> bool {
        self.clock.at(now).saturating_add(self.clock.half_ttl()) < place.deadline
    }

    /// A waiter that has never named its ticket may have lost its first answer. So the place of such an absent waiter stays until
    /// the queue's least TTL after its deadline.
    pub(crate) fn stays_unheard(&self, place: &QueuedPlace) -> bool {
        !place.is_heard && self.clock() < place.deadline.saturating_add(self.clock.least_ttl)
    }

    /// Whether the place with this ticket names this capacity.
    pub(crate) fn is_of(&self, ticket: u64, capacity: u32) -> bool {
        self.at(ticket).is_ok_and(|at| self.places[at].1.capacity == capacity)
    }

    /// The ticket of a request's place. `named`: the ticket that the request knows, 0 if none.
    pub(crate) fn ticket_of(&self, owner: &OwnerId, request: RequestId, named: u64) -> Option<u64> {
        self.index_of(owner, request, named).map(|at| self.places[at].0)
    }

    fn index_of(&self, owner: &OwnerId, request: RequestId, named: u64) -> Option<usize> {
        let is_its = |(_, place): &(u64, QueuedPlace)| place.request == request && place.owner.get() == owner;
        let by_ticket = self.at(named).ok().filter(|at| is_its(&self.places[*at]));
        by_ticket.or_else(|| self.places.iter().rposition(is_its)) // the latest request stands last
    }

    /// Where the place with this ticket stands, or would stand.
    fn at(&self, ticket: u64) -> Result<usize, usize> {
        self.places.binary_search_by_key(&ticket, |(ticket, _)| *ticket)
    }

    /// How many waiters are ahead of this ticket.
    pub(crate) fn rank_of(&self, ticket: u64) -> u64 {
        self.at(ticket).unwrap_or_else(|at| at) as u64
    }

    /// The places ahead of this ticket, the nearest first.
    pub(crate) fn ahead_of(&self, ticket: u64) -> impl Iterator<Item = &QueuedPlace> {
        let at = self.at(ticket).unwrap_or_else(|at| at);
        self.places.range(..at).rev().map(|(_, place)| place)
    }

    /// How many waiters are known to be absent: those of the first `most` that are silent, or gone.
    pub(crate) fn absent(&self, now: Moment, most: u64, is_gone: impl Fn(&OwnerId) -> bool) -> u64 {
        let clock = self.clock.seen_at(now);
        let examined = self.places.iter().take(count(most));
        let (examined, silent) = examined.fold((0, 0), |(examined, silent), (_, place)| {
            (examined + 1, silent + u64::from(place.deadline <= clock || is_gone(place.owner.get())))
        });
        let all_are_silent = examined > 0 && silent == examined && self.clock.is_silent(now);
        if all_are_silent { self.length() } else { silent }
    }

    /// A part of the queue as an operator sees it.
    pub(crate) fn inspect(&self, now: Moment, part: Range<u64>) -> Vec<Waiter> {
        let clock = self.clock.seen_at(now);
        let waiter = |place: &QueuedPlace| {
            let mut waiter = Waiter::new(place.owner.get().clone());
            waiter.request = Some(place.request);
            waiter.units = place.units;
            waiter.capacity = Some(place.capacity).filter(|capacity| *capacity > 1);
            waiter.waiting = Some(now.saturating_sub(place.joined));
            waiter.place_left = Some(place.deadline.saturating_sub(clock));
            waiter.set_label(place.label.get());
            waiter
        };
        let wanted = part.end.saturating_sub(part.start);
        self.places
            .iter()
            .skip(count(part.start))
            .take(count(wanted))
            .map(|(_, place)| waiter(place))
            .collect()
    }

    /// From when on all waiters are dead, if none is heard until then.
    pub(crate) fn over_at(&self) -> Moment {
        if self.is_empty() { Moment::ZERO } else { self.clock.over_at() }
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The queue's own clock, by which waiters are present or absent. It follows the store's clock, but moves between two operations on the queue by at most half of the least time to live in the queue.
/// Waiters renew their places every third of their times, so a longer silence of all is not their fault: the store stood still. If
/// that made all waiters overdue, the lock would go to the first waiter to ask afterwards.
#[derive(Default)]
struct Clock {
    /// The clock's value at the last operation.
    value: Moment,
    /// The store's time at the last operation.
    pulse: Moment,
    /// The least time to live of the places, and the longest since the queue was empty.
    least_ttl: Duration,
    longest_ttl: Duration,
    /// If this operation has found the clock behind the store's clock: for how long there was no operation. Not part of the state.
    held_back: Option<Duration>,
}

impl Clock {
    /// The current value. Reading does not move the clock. A store's clock that was set back moves it by nothing.
    fn at(&self, now: Moment) -> Moment {
        self.value.saturating_add(now.saturating_sub(self.pulse).min(self.half_ttl()))
    }

    /// The value for `inspect`, which follows the store's clock. The queue's clock stands still while no waiter is heard: by that
    /// clock the waiters of an abandoned lock would never be absent.
    fn seen_at(&self, now: Moment) -> Moment {
        self.value.saturating_add(now.saturating_sub(self.pulse))
    }

    /// Whether the queue has had no operation for longer than a live waiter can be silent.
    fn is_silent(&self, now: Moment) -> bool {
        self.pulse.saturating_add(DEAD_AFTER) < now
    }

    /// Half of the least time to live.
    fn half_ttl(&self) -> Duration {
        self.least_ttl / 2
    }

    /// An operation on the queue.
    fn pulse(&mut self, now: Moment) {
        let silence = now.saturating_sub(self.pulse);
        self.held_back = (silence > self.half_ttl()).then_some(silence);
        (self.value, self.pulse) = (self.at(now), now);
    }

    /// Nobody could be heard from then until now: that time does not count.
    fn skip(&mut self, since: Moment, now: Moment) {
        self.pulse = self.pulse.saturating_add(now.saturating_sub(since.max(self.pulse)));
    }

    /// A waiter with this TTL was heard. When the clock was held back, the least TTL becomes twice the silence of all waiters: a live waiter is
    /// heard every third of its TTL, so each live waiter's TTL is more than that. (If all stood still, the waiter with the least TTL is heard
    /// long before the clock can be held back again.) Otherwise one short wait would slow the clock for as long as anybody waits. The least
    /// TTL does not simply become the TTL of the waiter that is heard: live waiters may have shorter TTLs, and would be overdue if all stood
    /// still before these waiters were heard.
    fn count_ttl(&mut self, ttl: Duration, queue_is_empty: bool) {
        self.longest_ttl = if queue_is_empty { ttl } else { self.longest_ttl.max(ttl) };
        let silence = self.held_back.take();
        let least = silence.map_or(self.least_ttl, |silence| silence.saturating_mul(2));
        self.least_ttl = if queue_is_empty { ttl } else { least.min(ttl) };
    }

    /// When the last operation is so long ago that no waiter can be alive, by the store's clock: this clock stands still meanwhile.
    fn over_at(&self) -> Moment {
        let patience = self.longest_ttl.saturating_mul(12).max(DEAD_AFTER.saturating_mul(2));
        self.pulse.saturating_add(patience)
    }
}

/// The requests that wait for a plain lock. The requests have no order, and no place: each was told "busy", and stands here with the moment
/// until which another heartbeat is due.
#[derive(Default)]
pub(crate) struct Interest {
    requests: HashMap<(OwnerId, RequestId), Moment>,
}

impl Interest {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The request was heard: it waits.
    pub(crate) fn refresh(&mut self, place: &Place<'_>, now: Moment) {
        self.requests.insert((place.owner.clone(), place.request), now.saturating_add(place.ttl));
    }

    /// Whether the request waits.
    pub(crate) fn has(&self, place: &Place<'_>) -> bool {
        self.requests.contains_key(&(place.owner.clone(), place.request))
    }

    /// The request waits no more.
    pub(crate) fn remove(&mut self, owner: &OwnerId, request: RequestId) {
        if !self.requests.is_empty() {
            self.requests.remove(&(owner.clone(), request));
        }
    }

    /// One owner of each client to wake. Requests that were silent for too long are removed first.
    pub(crate) fn one_of_each_client(&mut self, now: Moment) -> Vec<OwnerId> {
        self.requests.retain(|_, until| now < until.saturating_add(DEAD_AFTER));
        let mut owners: Vec<OwnerId> = Vec::new();
        for (owner, _) in self.requests.keys() {
            if owners.iter().all(|other| other.client() != owner.client()) {
                owners.push(owner.clone());
            }
        }
        owners
    }

    /// Whether any request has been heard within its time.
    pub(crate) fn is_present(&self, now: Moment) -> bool {
        self.requests.values().any(|until| now < *until)
    }

    /// From when on all its requests were silent for too long, if none is heard until then.
    pub(crate) fn over_at(&self) -> Moment {
        self.requests.values().max().map_or(Moment::ZERO, |until| until.saturating_add(DEAD_AFTER))
    }
}

#[cfg(test)]
mod tests;
