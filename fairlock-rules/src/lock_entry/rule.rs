//! The one rule of who is next: makes a plan, carries the plan out, and says when to look again.
//!
//! `lib/rule.lua`, `write.lua` and `tell.lua` of the Redis backend are the same rule, within the bounds of one script; and
//! Redis never knows that a client is `Gone`.

use std::time::Duration;

use fairlock_core::backend::Place;
use fairlock_core::{FencingToken, LockKind, OwnerId};
use smallvec::SmallVec;

use super::LockEntry;
use super::holds::GrantedHold;
use crate::context::{Moment, OperationContext, Presence, WakeUpKind, Wrong};
use crate::queue::QueuedPlace;

/// What a place does at its turn.
enum AtItsTurn {
    /// The waiter gets its units.
    Takes,
    /// The waiter and all behind it wait.
    Stops,
    /// The place stays, and waiters behind may go first.
    Passed,
    /// The place is removed.
    Leaves,
}

impl LockEntry {
    fn turn_of(
        &self,
        context: &OperationContext<'_>,
        plan: &Plan,
        ticket: u64,
        place: &QueuedPlace,
    ) -> AtItsTurn {
        let of = if context.is(Wrong::FitsByTheLastGrant) { plan.capacity } else { place.capacity };
        let fits = place.units <= of.saturating_sub(plan.used);
        let is_heard = place.asked_in == context.call;
        let presence = if is_heard { Presence::Present } else { (context.presence)(place.owner.get()) };
        // A waiter that does not fit counts as present, even if its client is not subscribed, until half of the queue's least TTL is
        // left of its time: else a connection that breaks for a moment would cost its turn, since smaller ones would go first.
        let blocks =
            !fits && self.queue.blocks(place, context.now) && !context.is(Wrong::DeafBlockerIsAbsentAtOnce)
                || !fits && context.is(Wrong::BlockerIsWaitedFor);
        if presence == Presence::Gone {
            AtItsTurn::Leaves
        } else if !fits && plan.impatient == Some(ticket) {
            AtItsTurn::Passed // Its request does not wait: `acquire` removes the place.
        } else if is_heard
            || blocks
            || presence == Presence::Present && !self.queue.is_overdue(place, context.now)
        {
            match fits {
                true => AtItsTurn::Takes,
                false if context.is(Wrong::SmallerPasses) => AtItsTurn::Passed,
                false => AtItsTurn::Stops,
            }
        } else if context.is(Wrong::DeadHeadIsWaitedFor) {
            AtItsTurn::Stops
        } else if self.queue.stays_unheard(place) && !context.is(Wrong::UnheardLeavesAtOnce) {
            // A waiter that left comes back at its ticket. A waiter that may not know its ticket could not come back: its place
            // stays until the queue's least TTL after its deadline, and others pass.
            AtItsTurn::Passed
        } else {
            AtItsTurn::Leaves
        }
    }

    fn leave(plan: &mut Plan, ticket: u64) {
        plan.leaves.push(ticket);
        plan.served = plan.served.max(ticket);
    }

    /// Grants the lock to the waiters at the head, in order, as long as their units are free. The first present waiter that does not
    /// fit ends this (`plan.blocked`). Absent waiters leave. Nothing happens while all units are taken, while a lost queue
    /// comes back, and in a grace. A newcomer comes after all waiters: `acquire` grants it the lock only if nothing is blocked.
    ///
    /// Of a semaphore each waiter fits by its own number of permits. The search ends when the units in use reach both the number of the last
    /// grant and that of the client that asks now. A later waiter that names a greater number is served at its own heartbeat.
    pub(super) fn hand_on(&self, context: &mut OperationContext<'_>, plan: &mut Plan) {
        plan.blocked = self.is_resting(context.now);
        for (ticket, place) in self.queue.places() {
            if plan.blocked || plan.used >= plan.capacity.max(plan.asked) {
                return;
            }
            match self.turn_of(context, plan, ticket, place) {
                AtItsTurn::Stops => plan.blocked = true,
                AtItsTurn::Passed => {}
                AtItsTurn::Takes => {
                    plan.grant(context, place, self.queue.lease_of(place));
                    LockEntry::leave(plan, ticket);
                    plan.blocked = context.is(Wrong::OneGrantAScript);
                }
                AtItsTurn::Leaves if context.is(Wrong::AbsentIsNotServed) => plan.leaves.push(ticket),
                AtItsTurn::Leaves => {
                    LockEntry::leave(plan, ticket);
                    if context.is(Wrong::NewcomerBargesAfterManyAbsent) {
                        return;
                    }
                }
            }
        }
    }

    /// Whether no waiter is next: while a lost queue comes back, and in a grace.
    fn is_resting(&self, now: Moment) -> bool {
        self.grace.is_some() || !self.queue.rests_for(now).is_zero()
    }

    /// Whether the waiter was heard within its place's time, and a message would reach it.
    pub(super) fn is_present(&self, context: &OperationContext<'_>, place: &QueuedPlace) -> bool {
        !self.queue.is_overdue(place, context.now)
            && (context.presence)(place.owner.get()) == Presence::Present
    }
}

// The plan: what is to become of holds and places. Nothing is done before `write`.
/// What an operation is going to change.
#[derive(Default)]
pub(super) struct Plan {
    /// The units in use after the plan; never more than `capacity`.
    pub(super) used: u32,
    /// The capacity that the last grant named.
    pub(super) capacity: u32,
    /// The capacity that the asking client names.
    asked: u32,
    /// The holds that end.
    pub(super) drops: SmallVec<[FencingToken; 1]>,
    /// The new holds, and the owners to tell: those who have not asked in this operation.
    pub(super) grants: SmallVec<[GrantedHold; 1]>,
    pub(super) wake_ups: SmallVec<[(OwnerId, WakeUpKind); 1]>,
    /// The tickets that leave the queue, and the greatest ticket that has had its turn.
    pub(super) leaves: SmallVec<[u64; 1]>,
    pub(super) served: u64,
    /// A new place.
    pub(super) joins: Option<(u64, QueuedPlace)>,
    /// Whether all others have to wait: the first waiter does not fit, or the queue rests.
    pub(super) blocked: bool,
    /// When the last of the new holds was granted: microseconds since 1970; 0 without one.
    pub(super) granted: u64,
    /// The ticket of a place whose request asks without a wait.
    pub(super) impatient: Option<u64>,
}

impl Plan {
    /// Ends a hold.
    pub(super) fn drop(&mut self, hold: &GrantedHold) {
        self.drops.push(hold.token);
        self.used -= hold.units;
    }

    pub(super) fn grant(&mut self, context: &mut OperationContext<'_>, place: &QueuedPlace, lease: Duration) {
        let (owner, request, token) =
            (place.owner.get().clone(), place.request, FencingToken::new(context.next_number()));
        if place.asked_in != context.call {
            self.wake_ups.push((owner.clone(), WakeUpKind::Granted { request, token }));
        }
        (self.used, self.capacity) = (self.used + place.units, place.capacity);
        self.granted = context.granted_at(token);
        self.grants.push(GrantedHold {
            owner,
            request,
            token,
            units: place.units,
            holds: 1,
            since: context.now,
            ends: context.now.saturating_add(lease),
            label: place.label.get().clone(),
        });
    }
}

impl LockEntry {
    /// Begins a plan: the operation of a client that names this kind counts as one on the queue, and moves the queue's clock.
    pub(super) fn new_plan(&mut self, context: &OperationContext<'_>, asked: LockKind) -> Plan {
        self.queue.pulse(context.now, context.last_number());
        let (used, capacity, asked) = (self.holds.taken(), self.kind.capacity(), asked.capacity());
        Plan { used, capacity, asked, ..Plan::default() }
    }

    /// Carries out the plan.
    pub(super) fn write(&mut self, plan: &mut Plan) {
        for token in &plan.drops {
            self.holds.remove(*token);
        }
        for ticket in plan.leaves.drain(..) {
            self.queue.remove(ticket);
        }
        self.queue.serve(plan.served);
        if plan.capacity != self.kind.capacity() {
            self.kind = LockKind::Semaphore { permits: plan.capacity };
        }
        for hold in plan.grants.drain(..) {
            self.interest.remove(&hold.owner, hold.request);
            self.holds.add(hold);
        }
        if let Some(note) = self.note.as_mut().filter(|_| plan.granted > 0) {
            note.is_granted(plan.granted);
        }
        if let Some((ticket, place)) = plan.joins.take() {
            self.queue.insert(ticket, place);
        }
    }

    /// Sends the messages, after all writes, since nothing depends on a message. Units that stay free after a hold has ended go to no
    /// waiter of the queue: so waiters for plain locks are told.
    pub(super) fn tell(&mut self, context: &mut OperationContext<'_>, plan: Plan) {
        for (owner, kind) in plan.wake_ups {
            context.tell(&owner, kind);
        }
        if !plan.drops.is_empty() && self.free() > 0 {
            self.wake_plain(context);
        }
    }

    /// Tells the waiters for a plain lock to look.
    pub(super) fn wake_plain(&mut self, context: &mut OperationContext<'_>) {
        if self.interest.is_empty() {
            return;
        }
        for owner in self.interest.one_of_each_client(context.now) {
            context.tell(&owner, WakeUpKind::RecheckAny);
        }
    }

    /// Hands on what may be free, in an operation that changes nothing else of the queue.
    pub(super) fn hand_on_if_free(&mut self, context: &mut OperationContext<'_>, asked: LockKind) {
        if self.queue.is_empty() || self.free() == 0 {
            return;
        }
        let mut plan = self.new_plan(context, asked);
        self.hand_on(context, &mut plan);
        self.write(&mut plan);
        self.tell(context, plan);
    }
}

// When an answer tells a waiter to look again.
/// How long after the end of a hold the first in the queue looks, so that the hold has really ended.
const PAST_THE_END: Duration = Duration::from_millis(1);

/// The shortest time between two looks of a waiter for a lock with several holders.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

impl LockEntry {
    /// When a request outside the queue may try again: at the first end of a hold, at the end of the grace, or at once.
    pub(super) fn busy_for(&self, now: Moment) -> Duration {
        self.holds.first_end().max(self.grace).map_or(Duration::ZERO, |end| end.saturating_sub(now))
    }

    /// When a waiter of this rank looks without a message: when the first of the holds ends, if the waiter is the first in the
    /// queue; or if the waiter is the first of its client and the next heartbeat would be later: all waiters ahead may have died
    /// with the holder. While the queue rests: after the rest.
    pub(super) fn look_in(
        &self,
        now: Moment,
        rank: u64,
        place: &Place<'_>,
        is_first_of_client: bool,
    ) -> Duration {
        let left = self.busy_for(now);
        if rank > 0 && (left.saturating_mul(3) >= place.ttl || !is_first_of_client) {
            return Duration::MAX;
        }
        let rests_for = self.rests_for(now, place.lock.kind);
        match left.saturating_add(PAST_THE_END) {
            _ if !rests_for.is_zero() => rests_for,
            // Several holds may end soon after each other.
            when if self.kind.is_shared() => when.max(LOOKS_EVERY),
            when => when,
        }
    }

    /// When a restored waiter looks: at once if free units may be its own, since the restoring call hands nothing on.
    pub(super) fn restored_looks_in(&self, now: Moment, rank: u64, place: &Place<'_>) -> Duration {
        let may_be_next = self.free_of(place.lock.kind) > 0 && self.rests_for(now, place.lock.kind).is_zero();
        if may_be_next { Duration::ZERO } else { self.look_in(now, rank, place, true) }
    }

    /// For how much longer units stay free because the queue rests, for a client that names this kind.
    pub(super) fn rests_for(&self, now: Moment, asked: LockKind) -> Duration {
        if self.free_of(asked) > 0 { self.queue.rests_for(now) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairlock_core::backend::{Acquire, Acquired, Hold, LockId, Place, RequestId, Wait};
    use fairlock_core::{LockKind, LockName, OwnerId};

    use super::*;
    use crate::context::StoreContext;

    const REQUEST: RequestId = RequestId::new(1);

    /// A fair lock that `a:1` holds and `b:1` waits for, which knows its ticket; `b:1` may be deaf.
    struct Fixture {
        lock: LockId,
        entry: LockEntry,
        store_context: StoreContext,
        ticket: u64,
    }

    impl Fixture {
        fn new() -> Fixture {
            let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
            let mut fixture = Fixture {
                lock,
                entry: LockEntry::default(),
                store_context: StoreContext::default(),
                ticket: 0,
            };
            fixture.ask("a:1", 1, Wait::Forever);
            let Acquired::Queued { ticket, .. } = fixture.ask("b:1", 1, Wait::Forever) else { panic!() };
            fixture.ticket = ticket;
            fixture.ask("b:1", 1, Wait::Forever);
            fixture
        }

        fn ask(&mut self, owner: &str, second: u64, wait: Wait) -> Acquired {
            let owner = OwnerId::new(owner);
            let mut place = Place::new(&self.lock, &owner, REQUEST);
            (place.ticket, place.wait) = (self.ticket, wait);
            let mut context =
                self.store_context
                    .operation(&self.lock.name, Duration::from_secs(second), &|_| Presence::Present);
            self.entry.acquire(&mut context, &Acquire::new(place, Duration::from_secs(30))).unwrap()
        }

        /// Whether the waiter has the lock then.
        fn is_handed_on(&mut self, second: u64, hears: bool) -> bool {
            let (holder, waiter, now) =
                (OwnerId::new("a:1"), OwnerId::new("b:1"), Duration::from_secs(second));
            let token = self.entry.token_of(&holder, REQUEST, now).unwrap();
            let presence = |_: &_| Presence::if_listening(hears);
            let mut context = self.store_context.operation(&self.lock.name, now, &presence);
            self.entry.release(&mut context, &Hold::new(&self.lock, &holder, REQUEST, token));
            self.entry.token_of(&waiter, REQUEST, now).is_some()
        }
    }

    /// Its ticket has had its turn, so nothing was lost.
    #[test]
    fn an_absent_waiter_that_is_back_makes_no_queue_rest() {
        let mut fixture = Fixture::new();
        assert!(!fixture.is_handed_on(1, false) && fixture.entry.is_empty());
        let Acquired::Queued { recheck_in, .. } = fixture.ask("b:1", 1, Wait::Forever) else { panic!() };
        assert_eq!(recheck_in, Duration::ZERO);
    }

    /// Even one that may not know its ticket: its process has ended.
    #[test]
    fn a_waiter_that_is_gone_leaves_at_its_turn() {
        for (presence, leaves) in [(Presence::Gone, true), (Presence::Silent, false)] {
            let mut fixture = Fixture::new();
            fixture.ticket = 0;
            fixture.ask("c:1", 1, Wait::Forever); // a newcomer behind `b:1`, which leaves in any case
            let now = Duration::from_secs(1);
            let asked = |_: &_| presence;
            let mut context = fixture.store_context.operation(&fixture.lock.name, now, &asked);
            let ann = OwnerId::new("a:1");
            let token = fixture.entry.token_of(&ann, REQUEST, now).unwrap();
            fixture.entry.release(&mut context, &Hold::new(&fixture.lock, &ann, REQUEST, token));
            assert_eq!(fixture.entry.is_empty(), leaves, "{presence:?}");
        }
    }

    #[test]
    fn a_hold_ends_with_its_process() {
        let mut fixture = Fixture::new();
        let (ann, now) = (OwnerId::new("a:1"), Duration::from_secs(1));
        let is_gone = |owner: &OwnerId| if *owner == ann { Presence::Gone } else { Presence::Present };
        let context = fixture.store_context.operation(&fixture.lock.name, now, &is_gone);
        fixture.entry.end_gone(&context, LockKind::Fair, 0);
        assert_eq!(fixture.entry.free(), 0, "nobody wants it");
        let shown = fixture.entry.inspect(&context, &fixture.lock, 0..1).unwrap();
        assert!(shown.holders.is_empty());
        fixture.entry.end_gone(&context, LockKind::Fair, 1);
        assert_eq!(fixture.entry.free(), 1);
    }

    #[test]
    fn a_lock_of_gone_processes_can_become_one_of_another_kind() {
        let mut fixture = Fixture::new();
        let lock = LockId::new(fixture.lock.name.clone(), LockKind::Semaphore { permits: 2 });
        let (owner, now) = (OwnerId::new("c:1"), Duration::from_secs(1));
        let mut ask = |presence: Presence| {
            let asked = |_: &_| presence;
            let mut context = fixture.store_context.operation(&lock.name, now, &asked);
            let ask = Acquire::new(Place::new(&lock, &owner, REQUEST), Duration::from_secs(30));
            fixture.entry.acquire(&mut context, &ask).is_ok()
        };
        assert!(!ask(Presence::Present) && ask(Presence::Gone));
        assert_eq!(fixture.entry.free(), 1);
    }

    /// A waiter that stands before others is watched by those behind, and the holder by all.
    #[test]
    fn who_is_ahead_is_the_holder_and_the_places_before() {
        let mut fixture = Fixture::new();
        fixture.ticket = 0;
        for owner in ["c:1", "d:1"] {
            fixture.ask(owner, 1, Wait::Forever);
        }
        let ahead = |owner, most| {
            let owner = OwnerId::new(owner);
            fixture.entry.ahead_of(&owner, REQUEST, most).map(|owner| owner.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ahead("b:1", 9), ["a:1"]);
        assert_eq!(ahead("d:1", 9), ["a:1", "c:1", "b:1"]);
        assert_eq!(ahead("d:1", 1), ["a:1", "c:1"]);
        assert_eq!(ahead("e:1", 9), ["a:1"], "it does not stand in the queue");
    }

    /// No place depends on the TTL of a request that leaves none: it must not slow the clock of the waiters.
    #[test]
    fn the_ttl_of_a_try_does_not_count() {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Semaphore { permits: 3 });
        let (mut entry, mut store_context) = (LockEntry::default(), StoreContext::default());
        let mut ask = |owner: &str, second: u64, units, ttl, wait| {
            let owner = OwnerId::new(owner);
            let mut place = Place::new(&lock, &owner, REQUEST);
            (place.units, place.ttl, place.wait) = (units, Duration::from_secs(ttl), wait);
            let now = Duration::from_secs(second);
            let mut context = store_context.operation(&lock.name, now, &|_| Presence::Present);
            entry.acquire(&mut context, &Acquire::new(place, Duration::from_secs(300))).unwrap();
            entry.queue.clock()
        };
        ask("a:1", 1, 1, 60, Wait::Forever);
        let joined = ask("b:1", 1, 3, 60, Wait::Forever);
        ask("d:1", 1, 1, 1, Wait::No);
        assert_eq!(ask("b:1", 21, 3, 60, Wait::Forever) - joined, Duration::from_secs(20));
    }

    /// They are no word of a waiter, so they do not move the queue's clock.
    #[test]
    fn tries_of_a_lock_that_is_taken_make_no_waiter_absent() {
        let mut fixture = Fixture::new();
        for second in [5, 9, 13] {
            assert!(matches!(fixture.ask("c:1", second, Wait::No), Acquired::Busy { .. }));
        }
        assert!(fixture.is_handed_on(14, true));
    }
}
