//! The operations on one lock: take it, keep it, give it up or away, leave its queue; and an operator's: take it from its holders,
//! look, list.
//!
//! Each reads what has ended, makes a plan by the rule, writes the plan, and tells the owners concerned.

use std::ops::Range;
use std::time::Duration;

use fairlock_core::backend::{
    Acquire, Acquired, BackendError, BackendErrorKind, Declined, ForceReleased, Hold, LockId, LockState,
    MOST_INSPECTED, Place, Released, Renew, Renewal, Wait, Withdrawn,
};
use fairlock_core::{LockKind, LockName, OwnerId};

use super::LockEntry;
use super::holds::GrantedHold;
use crate::context::{OperationContext, WakeUpKind, Wrong};
use crate::queue::Heartbeat;

/// How many holders it lists.
const MOST_HOLDERS: usize = 500;

impl LockEntry {
    /// Takes the lock, or a place in its queue: [`Backend::acquire`](fairlock_core::backend::Backend::acquire).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind; `InvalidConfig` for more units than the lock has.
    pub fn acquire(
        &mut self,
        context: &mut OperationContext<'_>,
        ask: &Acquire<'_>,
    ) -> Result<Acquired, BackendError> {
        self.read(context);
        if let Some(declined) = self.declines(context, ask) {
            return Ok(Acquired::Declined(declined));
        }
        if let Err(error) = self.check_place(context, &ask.place) {
            self.hand_on_if_free(context, self.kind);
            return Err(error);
        }
        let Place { lock, owner, request, wait, units, ttl, ticket: named, .. } = ask.place;
        // A repeat. A hold of this owner under another request does not matter: nobody can know which of the two requests is late.
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(context.now));
        }
        let queues = wait != Wait::No && lock.kind != LockKind::Plain;
        let (own, free) = (self.queue.ticket_of(owner, request, named), self.free_of(lock.kind));
        let is_full = free == 0 && self.free() == 0;
        if own.is_none() && !queues && (is_full || self.queue.is_empty() && units > free) {
            return Ok(self.busy(context, ask));
        }

        let mut plan = self.new_plan(context, lock.kind);
        let heartbeat =
            Heartbeat { place: &ask.place, lease: ask.lease, label: Some(ask.label), call: context.call };
        if own.is_some() {
            self.queue.hear(heartbeat);
            plan.impatient = own.filter(|_| !queues);
        } else if queues {
            self.queue.count_ttl(ttl);
            if context.may_have_drawn(named) && self.queue.is_free(named) {
                return Ok(self.restore(context, heartbeat));
            }
        }
        if own.is_some() || !context.is(Wrong::NewcomerBarges) {
            self.hand_on(context, &mut plan);
        }

        // A newcomer gets its units if they are free and no waiter is ahead.
        let is_granted = plan.grants.iter().any(|hold| hold.is_of(owner, request));
        let mut declined = None;
        if own.is_none() {
            let place = self.queue.new_place(heartbeat, context.label(ask.label), context.now);
            if !plan.blocked && units <= lock.kind.capacity().saturating_sub(plan.used) {
                plan.grant(context, &place, ask.lease);
            } else if queues {
                let ahead = self.queue.length().saturating_sub(plan.leaves.len() as u64);
                declined =
                    ask.condition.most_ahead.filter(|most| ahead > *most).map(|_| Declined::Ahead(ahead));
                if declined.is_none() {
                    plan.joins = Some((context.next_number(), place));
                }
            }
        } else if !queues && !is_granted {
            plan.leaves.extend(own);
        }
        self.write(&mut plan);
        self.tell(context, plan);
        if let Some(hold) = self.holds.of(owner, request) {
            return Ok(hold.granted(context.now));
        }
        if let Some(declined) = declined {
            return Ok(Acquired::Declined(declined));
        }
        Ok(if queues { self.queued(context, &ask.place) } else { self.busy(context, ask) })
    }

    /// Puts a waiter back at its named ticket. The number drawn here is later than any grant of the former place, and so tells
    /// which messages are old. Nothing is handed on: the waiter stands in the queue now, and looks itself.
    fn restore(&mut self, context: &mut OperationContext<'_>, heartbeat: Heartbeat<'_>) -> Acquired {
        let Place { ticket, ttl, .. } = *heartbeat.place;
        let latest = context.next_number();
        self.queue.rest_if_lost(ticket, ttl, latest);
        let label = context.label(heartbeat.label.unwrap_or_default());
        let mut place = self.queue.new_place(heartbeat, label, context.now);
        place.is_heard = true;
        self.queue.insert(ticket, place);
        let rank = self.queue.rank_of(ticket);
        Acquired::Queued {
            rank,
            recheck_in: self.restored_looks_in(context.now, rank, heartbeat.place),
            ticket,
            latest,
        }
    }

    fn queued(&self, context: &OperationContext<'_>, place: &Place<'_>) -> Acquired {
        let ticket = self.queue.ticket_of(place.owner, place.request, place.ticket).unwrap_or(0);
        let rank = self.queue.rank_of(ticket);
        let recheck_in = self.look_in(context.now, rank, place, true);
        Acquired::Queued { rank, recheck_in, ticket, latest: context.last_number() }
    }

    /// The answer to a request that does not stand in the queue. The request may wait for a plain lock.
    fn busy(&mut self, context: &OperationContext<'_>, ask: &Acquire<'_>) -> Acquired {
        let mut rests_for = Duration::ZERO;
        if ask.place.wait == Wait::No {
            self.interest.remove(ask.place.owner, ask.place.request);
        } else {
            self.interest.refresh(&ask.place, context.now);
            rests_for = self.rests_for(context.now, ask.place.lock.kind); // or it would ask without a pause
        }
        Acquired::Busy { recheck_in: self.busy_for(context.now).max(rests_for) }
    }

    /// Keeps holds and places of this lock alive: [`Backend::renew`](fairlock_core::backend::Backend::renew). All items are heard before
    /// any is answered, so a free lock goes to the first in the queue of *all* waiters of this call, whatever the order of the items.
    pub fn renew(&mut self, context: &mut OperationContext<'_>, items: &[Renew<'_>]) -> Vec<Renewal> {
        self.read(context);
        // A holder's renewal hands nothing on: the heartbeats of waiters do.
        let of_waiters = items.iter().filter_map(|item| match item {
            Renew::Place { place, .. } => Some(place),
            Renew::Hold { .. } => None,
        });
        let of_waiter = of_waiters.max_by_key(|place| place.lock.kind.capacity());
        let mut plan = of_waiter.map(|place| self.new_plan(context, place.lock.kind));
        items.iter().for_each(|item| self.hear(context, item));
        if let Some(mut plan) = plan.take() {
            self.hand_on(context, &mut plan);
            self.write(&mut plan);
            self.tell(context, plan);
        }
        let first = items.iter().filter_map(|item| self.waits_at(item)).min();
        items.iter().map(|item| self.answer(context, item, first)).collect()
    }

    /// Hears the item. A heartbeat puts no place back: it may arrive after the request's end. If the request still waits, its client
    /// asks again, and names the ticket.
    fn hear(&mut self, context: &OperationContext<'_>, item: &Renew<'_>) {
        match item {
            Renew::Hold { hold, holds, lease } => {
                if let Some(token) = self.holds.find(hold).map(|kept| kept.token) {
                    // Never shorter: an earlier renewal may arrive later.
                    self.holds.prolong(token, context.now.saturating_add(*lease));
                    self.holds.set_count(token, *holds);
                }
            }
            Renew::Place { place, .. } if !self.may_grant(place) => {}
            Renew::Place { place, .. } if place.lock.kind == LockKind::Plain => {
                self.interest.refresh(place, context.now);
            }
            Renew::Place { place, lease } => {
                if self.waits_at(item).is_some() {
                    self.queue.hear(Heartbeat { place, lease: *lease, label: None, call: context.call });
                }
            }
        }
    }

    /// The ticket of the waiter that this heartbeat is for. None if the heartbeat names another ticket: the waiter has a new one since, which
    /// its client's next ask learns. Also none if the heartbeat and the place name different numbers of permits.
    fn waits_at(&self, item: &Renew<'_>) -> Option<u64> {
        let Renew::Place { place, .. } = item else { return None };
        let ticket = self.queue.ticket_of(place.owner, place.request, place.ticket)?;
        let is_its_own = place.ticket == 0 || place.ticket == ticket;
        let is_of = self.queue.is_of(ticket, place.lock.kind.capacity());
        (is_its_own && is_of && self.may_grant(place)).then_some(ticket)
    }

    /// The answer to the item, after all items were heard. `first`: the first ticket of all waiters in the call.
    fn answer(&mut self, context: &OperationContext<'_>, item: &Renew<'_>, first: Option<u64>) -> Renewal {
        let place = match item {
            Renew::Hold { hold, .. } => {
                return self.holds.find(hold).map_or(Renewal::Lost, |_| Renewal::Renewed);
            }
            Renew::Place { place, .. } => place,
        };
        if let Some(hold) = self.holds.of(place.owner, place.request) {
            let (token, lease) = (hold.token, hold.left(context.now));
            self.interest.remove(place.owner, place.request);
            return Renewal::Granted { token, lease };
        }
        if place.lock.kind == LockKind::Plain && self.interest.has(place) {
            return Renewal::Waiting { rank: 0, recheck_in: self.busy_for(context.now), latest: 0 };
        }
        let Some(ticket) = self.waits_at(item) else { return Renewal::Lost };
        let rank = self.queue.rank_of(ticket);
        let recheck_in = self.look_in(context.now, rank, place, Some(ticket) == first);
        Renewal::Waiting { rank, recheck_in, latest: context.last_number() }
    }

    /// Gives a hold up, and hands the lock on: [`Backend::release`](fairlock_core::backend::Backend::release).
    pub fn release(&mut self, context: &mut OperationContext<'_>, hold: &Hold<'_>) -> Released {
        self.read(context);
        let is_held = self.holds.find(hold).is_some();
        let in_queue = if is_held { None } else { self.queue.ticket_of(hold.owner, hold.request, 0) };
        if !is_held && in_queue.is_none() {
            self.hand_on_if_free(context, hold.lock.kind);
            return Released::NotHeld;
        }
        let mut plan = self.new_plan(context, hold.lock.kind);
        let held = self.holds.find(hold);
        if let Some(held) = held {
            plan.drop(held);
        } else if let Some(ticket) = in_queue {
            // A late repeat of the `acquire` has made a place after the hold ended: a release ends the request, whatever its state.
            self.queue.remove(ticket);
        }
        self.hand_on(context, &mut plan);
        let released = if plan.drops.is_empty() { Released::NotHeld } else { Released::Released };
        self.write(&mut plan);
        self.tell(context, plan);
        released
    }

    /// Gives a hold to another owner: [`Backend::adopt`](fairlock_core::backend::Backend::adopt). If the hold ends earlier then, waiters are
    /// told to look again.
    ///
    /// # Errors
    /// `Unavailable` in a grace, unless the owner has the hold: the store may have forgotten that it gave the hold to a third one.
    pub fn adopt(
        &mut self,
        context: &mut OperationContext<'_>,
        hold: &Hold<'_>,
        owner: &OwnerId,
        lease: Duration,
    ) -> Result<Renewal, BackendError> {
        self.read(context);
        let (Hold { lock, request, token, .. }, ends) = (*hold, context.now.saturating_add(lease));
        if self.holds.find(&Hold::new(lock, owner, request, token)).is_some() {
            // A repeat, as a renewal: one that comes late shortens nothing, and leaves the count as it is.
            self.holds.prolong(token, ends);
            return Ok(Renewal::Renewed);
        }
        if self.grace.is_some() {
            let what = "the store may have forgotten who has the hold, and gives no hold to another owner until it must have ended";
            return Err(BackendError::new(BackendErrorKind::Unavailable, what));
        }
        let is_alike = self.kind.agrees_with(lock.kind);
        let given = self.holds.find(hold).filter(|given| is_alike && !context.is_gone(&given.owner));
        // Two holds of one request, or a hold and a place, could not be told apart.
        let is_known =
            self.holds.of(owner, request).is_some() || self.queue.ticket_of(owner, request, 0).is_some();
        let Some(given) = given.filter(|_| !is_known) else { return Ok(Renewal::Lost) };
        let is_earlier = ends < given.ends;
        self.holds.give_to(token, owner, ends);
        if is_earlier {
            if let Some((_, first)) = self.queue.places().next() {
                context.tell(first.owner.get(), WakeUpKind::Recheck);
            }
            self.wake_plain(context);
        }
        Ok(Renewal::Renewed)
    }

    /// Takes a request out of the queue: [`Backend::withdraw`](fairlock_core::backend::Backend::withdraw).
    pub fn withdraw(&mut self, context: &mut OperationContext<'_>, place: &Place<'_>) -> Withdrawn {
        self.read(context);
        if let Some(hold) = self.holds.of(place.owner, place.request) {
            return Withdrawn::WasGranted { token: hold.token, lease: hold.left(context.now) };
        }
        self.interest.remove(place.owner, place.request);
        if self.queue.is_empty() {
            return Withdrawn::Left;
        }
        let mut plan = self.new_plan(context, place.lock.kind);
        // Removed before the lock is handed on: a free unit must not go to the leaving request. If that request was the first and
        // did not fit, others may fit now.
        if let Some(ticket) = self.queue.ticket_of(place.owner, place.request, place.ticket) {
            self.queue.remove(ticket);
        }
        self.hand_on(context, &mut plan);
        self.write(&mut plan);
        self.tell(context, plan);
        Withdrawn::Left
    }

    /// Takes the lock from all its holders: [`Backend::force_release`](fairlock_core::backend::Backend::force_release).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind.
    pub fn force_release(
        &mut self,
        context: &mut OperationContext<'_>,
        lock: &LockId,
    ) -> Result<ForceReleased, BackendError> {
        self.read(context);
        if let Err(error) = self.check_kind(context, lock.kind) {
            self.hand_on_if_free(context, self.kind);
            return Err(error);
        }
        Ok(self.take(context, lock.kind, |_| true))
    }

    /// Takes one hold from its owner: [`Backend::take_hold`](fairlock_core::backend::Backend::take_hold).
    pub fn take_hold(&mut self, context: &mut OperationContext<'_>, hold: &Hold<'_>) -> ForceReleased {
        self.read(context);
        let token = self.holds.find(hold).map(|kept| kept.token);
        self.take(context, hold.lock.kind, |kept| Some(kept.token) == token)
    }

    /// The holds are those before the lock is handed on: one that the caller saw may have just expired, and the next holder must not
    /// pay for it.
    fn take(
        &mut self,
        context: &mut OperationContext<'_>,
        asked: LockKind,
        is_taken: impl Fn(&GrantedHold) -> bool,
    ) -> ForceReleased {
        let mut plan = self.new_plan(context, asked);
        for hold in self.holds.iter().filter(|hold| is_taken(hold)) {
            context.tell(&hold.owner, WakeUpKind::Taken { token: hold.token });
            plan.drop(hold);
        }
        self.hand_on(context, &mut plan);
        let released = if plan.drops.is_empty() { ForceReleased::NotHeld } else { ForceReleased::Taken };
        self.write(&mut plan);
        self.tell(context, plan);
        released
    }

    /// Tells the holders and a part of the queue: [`Backend::inspect`](fairlock_core::backend::Backend::inspect).
    ///
    /// # Errors
    /// `Mismatch` if the name is in use for a lock of another kind.
    pub fn inspect(
        &self,
        context: &OperationContext<'_>,
        lock: &LockId,
        part: Range<u64>,
    ) -> Result<LockState, BackendError> {
        let (mut state, now) = (LockState::default(), context.now);
        if !self.is_idle(context) {
            // An operator need not know how many units it has.
            if (self.kind.capacity() == 1) != (lock.kind.capacity() == 1) {
                return Err(self.mismatch(lock.kind));
            }
            let first = self.queue.places().next().filter(|_| self.holds.is_empty());
            let capacity = first.map_or(self.kind.capacity(), |(_, place)| place.capacity);
            state.capacity = self.kind.is_shared().then_some(capacity);
        }
        state.queue_length = self.queue.length();
        state.absent = self
            .queue
            .absent(now, if part.is_empty() { 0 } else { MOST_INSPECTED }, |owner| context.is_gone(owner));
        state.queue = self.queue.inspect(now, part);
        let gone = state.queue.iter_mut().filter(|waiter| context.is_gone(&waiter.owner));
        gone.for_each(|waiter| waiter.place_left = Some(Duration::ZERO));
        let (mut holds, others) = self.holds.first_to_end(now, MOST_HOLDERS);
        holds.retain(|hold| !context.is_gone(&hold.owner));
        holds.sort_by_key(|hold| hold.token);
        state.holders = holds.into_iter().map(|hold| hold.inspect(now)).collect();
        state.unlisted_holders = others;
        if others > 0 {
            state.unlisted_units = self.holds.taken().saturating_sub(state.taken());
        }
        Ok(state)
    }

    /// The lock in a list: its holders, its first waiter, and the numbers of waiters. None for an unused lock.
    pub fn listed(&self, context: &OperationContext<'_>, name: &LockName) -> Option<LockState> {
        // One waiter at least: a look at none of the queue does not tell who is absent.
        let look = |kind| self.inspect(context, &LockId::new(name.clone(), kind), 0..1);
        let state = look(LockKind::Fair).or_else(|_| look(LockKind::ReadWrite)).ok()?;
        Some(state).filter(|state| !state.holders.is_empty() || state.waiting() > 0)
    }
}

/// The answers to items of many locks: `renew` gets all items of one lock at once, lock by lock.
pub fn renew_by_lock<'a, A>(
    items: &[Renew<'a>],
    mut renew: impl FnMut(&'a LockName, &[Renew<'a>]) -> Vec<A>,
) -> Vec<A> {
    let name_of = |at: usize| &lock_of(&items[at]).name;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_cached_key(|&at| (name_of(at).hash_code(), name_of(at)));
    let sorted: Vec<_> = order.iter().map(|&at| items[at]).collect();
    let by_lock = sorted.chunk_by(|one, other| lock_of(one).name == lock_of(other).name);
    let renewed = by_lock.flat_map(|items| renew(&lock_of(&items[0]).name, items));
    let mut answers: Vec<_> = order.iter().zip(renewed).collect();
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The lock that this item is about.
pub fn lock_of<'a>(item: &Renew<'a>) -> &'a LockId {
    match item {
        Renew::Hold { hold, .. } => hold.lock,
        Renew::Place { place, .. } => place.lock,
    }
}

/// Whether the name has the form of this pattern of a list of locks, as in Redis: `*` is any text, `?` one character, `[ab]` and `[a-c]` a
/// character of a list, `[^ab]` any other character; behind `\` a character stands for itself.
pub fn fits_pattern(pattern: &str, name: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    fits(&chars(pattern), &chars(name))
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], _) => name.is_empty(),
        (['*', rest @ ..], _) => (0..=name.len()).any(|at| fits(rest, &name[at..])),
        (_, []) => false,
        (['?', rest @ ..], [_, name @ ..]) => fits(rest, name),
        (['[', rest @ ..], [c, name @ ..]) => {
            let end = rest.iter().position(|c| *c == ']').unwrap_or(rest.len());
            is_one_of(&rest[..end], *c) && fits(rest.get(end + 1..).unwrap_or_default(), name)
        }
        (['\\', wanted, rest @ ..] | [wanted, rest @ ..], [c, name @ ..]) => wanted == c && fits(rest, name),
    }
}

fn is_one_of(set: &[char], c: char) -> bool {
    match set {
        ['^', others @ ..] => !is_one_of(others, c),
        [from, '-', to, rest @ ..] => (*from..=*to).contains(&c) || is_one_of(rest, c),
        [one, rest @ ..] => *one == c || is_one_of(rest, c),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use fairlock_core::FencingToken;
    use fairlock_core::backend::RequestId;

    use super::*;
    use crate::context::{Presence, StoreContext};

    const REQUEST: RequestId = RequestId::new(1);
    const LEASE: Duration = Duration::from_secs(30);

    /// A lock of this kind, whose clients live but for `gone`.
    struct World {
        lock: LockId,
        entry: LockEntry,
        store_context: StoreContext,
        gone: &'static str,
    }

    impl World {
        fn new(kind: LockKind) -> World {
            let lock = LockId::new(LockName::new("x").unwrap(), kind);
            World { lock, entry: LockEntry::default(), store_context: StoreContext::default(), gone: "none" }
        }

        /// The answer, and who is told to look.
        fn run<T>(
            &mut self,
            operate: impl FnOnce(&mut LockEntry, &mut OperationContext<'_>, &LockId) -> T,
        ) -> (T, Vec<String>) {
            let World { lock, entry, store_context, gone } = self;
            let presence =
                |owner: &OwnerId| if owner.client() == *gone { Presence::Gone } else { Presence::Present };
            let mut context = store_context.operation(&lock.name, Duration::from_secs(9), &presence);
            let answer = operate(entry, &mut context, lock);
            let told = store_context.take_wake_ups().into_iter();
            (answer, told.map(|wake_up| wake_up.owner.to_string()).collect())
        }

        fn asks(&mut self, owner: &str) -> Acquired {
            let owner = OwnerId::new(owner);
            self.run(|entry, context, lock| {
                entry.acquire(context, &Acquire::new(Place::new(lock, &owner, REQUEST), LEASE)).unwrap()
            })
            .0
        }

        fn token(&mut self, owner: &str) -> FencingToken {
            let Acquired::Granted { token, .. } = self.asks(owner) else { panic!("it is not free") };
            token
        }

        fn adopts(
            &mut self,
            (owner, token): (&str, FencingToken),
            by: &str,
            lease: Duration,
        ) -> (Result<Renewal, BackendErrorKind>, Vec<String>) {
            let [owner, by] = [owner, by].map(OwnerId::new);
            self.run(|entry, context, lock| {
                let hold = Hold::new(lock, &owner, REQUEST, token);
                entry.adopt(context, &hold, &by, lease).map_err(|error| error.kind())
            })
        }
    }

    #[test]
    fn waiters_look_again_if_an_adopted_hold_ends_earlier() {
        for (lease, told) in [(LEASE, &[][..]), (LEASE / 2, &["c:1"])] {
            let mut world = World::new(LockKind::Fair);
            let token = world.token("a:1");
            world.asks("c:1");
            world.asks("d:1");
            let first = world.adopts(("a:1", token), "b:1", lease);
            assert_eq!(first, (Ok(Renewal::Renewed), told.iter().map(ToString::to_string).collect()));
            // A repeat shortens nothing.
            assert_eq!(world.adopts(("a:1", token), "b:1", lease / 2), (Ok(Renewal::Renewed), Vec::new()));
            assert_eq!(world.entry.holds.first_end(), Some(Duration::from_secs(9) + lease));
        }
    }

    #[test]
    fn one_of_many_holds_is_adopted_as_one_of_few_is() {
        for others in [3, 2 * crate::lock_entry::FEW] {
            let mut world = World::new(LockKind::Semaphore { permits: 500 });
            let token = world.token("a:1");
            for number in 0..others {
                world.token(&format!("o:{number}"));
            }
            assert_eq!(world.adopts(("a:1", token), "o:1", LEASE).0, Ok(Renewal::Lost), "it has a hold");
            assert_eq!(world.adopts(("a:1", token), "b:1", LEASE / 2).0, Ok(Renewal::Renewed));
            assert_eq!(world.adopts(("a:1", token), "c:1", LEASE).0, Ok(Renewal::Lost));
            let ends = Duration::from_secs(9) + LEASE / 2;
            assert_eq!(
                (world.entry.holds.first_end(), world.entry.free()),
                (Some(ends), 499 - others as u32)
            );
            let owner_of = |owner| world.entry.holds.of(&OwnerId::new(owner), REQUEST).map(|hold| hold.token);
            assert_eq!([owner_of("a:1"), owner_of("b:1")], [None, Some(token)]);
        }
    }

    #[test]
    fn a_lock_is_listed_while_it_is_held_or_waited_for() {
        let mut world = World::new(LockKind::Fair);
        let listed = |world: &mut World| {
            let seen = world.run(|entry, context, lock| entry.listed(context, &lock.name)).0;
            seen.map(|state| (state.holders.len(), state.waiting()))
        };
        assert_eq!(listed(&mut world), None);
        world.token("a:1");
        assert_eq!(listed(&mut world), Some((1, 0)));
        world.asks("b:1");
        assert_eq!(listed(&mut world), Some((1, 1)));
        world.gone = "a";
        assert_eq!(listed(&mut world), Some((0, 1)));
    }

    #[test]
    fn a_hold_is_over_with_its_process_unless_it_was_adopted() {
        for (gone, answer) in [("a", Renewal::Lost), ("z", Renewal::Renewed)] {
            let mut world = World::new(LockKind::Fair);
            let token = world.token("a:1");
            world.gone = gone;
            assert_eq!(world.adopts(("a:1", token), "b:1", LEASE).0, Ok(answer));
            world.gone = "a";
            world.run(|entry, context, _| entry.end_gone(context, LockKind::Fair, 1));
            assert_eq!(world.entry.free() == 1, answer == Renewal::Lost);
        }
    }

    /// The store may have forgotten that it gave the hold to another one.
    #[test]
    fn in_a_grace_only_the_adopter_has_the_hold() {
        let mut world = World::new(LockKind::Fair);
        let token = world.token("a:1");
        world.adopts(("a:1", token), "b:1", LEASE).0.unwrap();
        world.entry.grant_nothing_until(Duration::from_secs(10));
        assert_eq!(world.adopts(("a:1", token), "b:1", LEASE).0, Ok(Renewal::Renewed));
        for former in ["a:1", "b:1"] {
            let third = world.adopts((former, token), "c:1", LEASE).0;
            assert_eq!(third, Err(BackendErrorKind::Unavailable));
        }
    }

    /// It would have two holds by one request, or a hold and a place, which nobody can tell apart.
    #[test]
    fn nobody_adopts_a_hold_by_a_request_of_its_own() {
        let mut world = World::new(LockKind::Fair);
        let token = world.token("a:1");
        world.asks("c:1");
        assert_eq!(world.adopts(("a:1", token), "c:1", LEASE), (Ok(Renewal::Lost), Vec::new()));
        assert!(world.entry.token_of(&OwnerId::new("a:1"), REQUEST, Duration::from_secs(9)).is_some());
    }

    /// Each lock is asked once, and the answers stand as the items do.
    #[test]
    fn each_lock_is_asked_once_and_answers_keep_their_places() {
        let name = |number| LockName::new(&format!("lock:{number}")).unwrap();
        let locks: Vec<_> = (0..7).map(|number| LockId::new(name(number), LockKind::Fair)).collect();
        let (owner, lease) = (OwnerId::new("c:1"), Duration::ZERO);
        let place = |number: usize| Place::new(&locks[number % 7], &owner, RequestId::new(number as u64));
        let items: Vec<_> = (0..50).map(|number| Renew::Place { place: place(number), lease }).collect();
        let mut asked = Vec::new();
        let answers = renew_by_lock(&items, |lock, items| {
            asked.push(lock.clone());
            let request = |item: &Renew<'_>| match item {
                Renew::Place { place, .. } if place.lock.name == *lock => place.request.get(),
                _ => u64::MAX,
            };
            let requests: Vec<_> = items.iter().map(request).collect();
            assert!(requests.is_sorted(), "{requests:?}");
            requests
        });
        assert_eq!(answers, (0..50).collect::<Vec<_>>());
        asked.sort();
        assert_eq!(asked, (0..7).map(name).collect::<Vec<_>>());
    }

    #[test]
    fn a_pattern_fits_as_in_redis() {
        for (pattern, those, others) in [
            ("*", &["", "a", "a:b"][..], &[][..]),
            ("orders:*", &["orders:", "orders:7"], &["orders", "my orders:7"]),
            ("*a*b", &["ab", "xaab", "abab"], &["a", "ba", "abc"]),
            ("?é", &["aé", "éé"], &["é", "aaé"]),
            ("x[ab-d]", &["xa", "xc"], &["xe", "x-", "x"]),
            ("[^ab]", &["c"], &["a", "b", "", "cc"]),
            (r"\*[*]", &["**"], &["a*", "*a"]),
        ] {
            let does_fit = |name: &&&str| fits_pattern(pattern, name);
            assert_eq!(those.iter().filter(does_fit).count(), those.len(), "{those:?}");
            assert_eq!(others.iter().filter(does_fit).count(), 0, "{others:?}");
        }
    }
}
