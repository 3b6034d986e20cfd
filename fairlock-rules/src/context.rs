//! The context of one operation on one lock, and what the operations of a store have in common.

use std::sync::Arc;
use std::time::Duration;

use fairlock_core::{FencingToken, LockName, OwnerId};

use crate::wake_up::{WakeUp, WakeUpKind};

/// A moment by the store's clock: the time since 1970. It must not go back from one operation on a lock to the next.
pub type Moment = Duration;

/// Tokens follow the store's clock up to here (the year 2112). From here on they only count, to stay below 2^53.
const LAST_BY_CLOCK: u64 = 1 << 52;

/// What a store knows of the client of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A message would reach the client, or the store can't know.
    Present,
    /// No message would reach the client, which may be alive.
    Silent,
    /// The process of the client has certainly ended, and with it all that the client held.
    Gone,
}

impl Presence {
    /// For a store that knows no more than who listens.
    pub fn if_listening(is_listening: bool) -> Presence {
        if is_listening { Presence::Present } else { Presence::Silent }
    }
}

/// What the operations of a store have in common: the sequence that tokens and tickets come from, and the messages to send. A store
/// may have one for all its locks, or make one for each step.
#[derive(Default)]
pub struct StoreContext {
    last: u64,
    wake_ups: Vec<WakeUp>,
    /// The last label that was kept.
    last_label: Arc<str>,
}

impl StoreContext {
    /// A context whose numbers are greater than `last`, the last number that the lock has drawn, even if nothing else of the lock
    /// is left. Numbers follow the clock, so 0 will do for a lock that was not used for a while.
    pub fn after(last: u64) -> StoreContext {
        StoreContext { last, ..StoreContext::default() }
    }

    /// The last number that was drawn: what [`after`](StoreContext::after) needs in the next step. Below 2^53.
    pub fn last_number(&self) -> u64 {
        self.last
    }

    /// The messages to send, in this order, once the lock's state is written and free for other calls.
    pub fn take_wake_ups(&mut self) -> Vec<WakeUp> {
        std::mem::take(&mut self.wake_ups)
    }

    /// The context of one operation on the lock of this name at this moment. `presence` tells of the client of an
    /// owner. At its turn a waiter that is not present is passed over, unless it asks in the same operation. The holds of those who
    /// are gone end by [`end_gone`](crate::LockEntry::end_gone).
    pub fn operation<'a>(
        &'a mut self,
        lock: &'a LockName,
        now: Moment,
        presence: &'a dyn Fn(&OwnerId) -> Presence,
    ) -> OperationContext<'a> {
        OperationContext {
            lock,
            now,
            since_1970: None,
            presence,
            store_context: self,
            call: 0,
            #[cfg(feature = "model")]
            wrong: None,
        }
    }
}

fn whole_micros(time: Moment) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(LAST_BY_CLOCK)
}

/// What operations on one lock need beside its state.
pub struct OperationContext<'a> {
    lock: &'a LockName,
    pub(crate) now: Moment,
    since_1970: Option<Moment>,
    pub(crate) presence: &'a dyn Fn(&OwnerId) -> Presence,
    store_context: &'a mut StoreContext,
    /// The number of the operation: a waiter that asks in this operation learns of a grant by the answer.
    pub(crate) call: u64,
    /// The mistake that the operation makes.
    #[cfg(feature = "model")]
    pub wrong: Option<Wrong>,
}

impl OperationContext<'_> {
    /// For a store whose clock does not count from 1970: what the time since then is at this moment. Periods go by it.
    #[must_use]
    pub fn at_wall_clock(mut self, since_1970: Moment) -> Self {
        self.since_1970 = Some(since_1970);
        self
    }

    /// Whether the operation makes this mistake.
    #[cfg(feature = "model")]
    pub(crate) fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// Without models no operation makes a mistake.
    #[cfg(not(feature = "model"))]
    pub(crate) const fn is(&self, _: Wrong) -> bool {
        false
    }

    /// Whether the owner's process has certainly ended.
    pub(crate) fn is_gone(&self, owner: &OwnerId) -> bool {
        (self.presence)(owner) == Presence::Gone
    }

    /// Microseconds of the store's clock, as on Redis, but always growing.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.store_context.last = self.micros().max(self.store_context.last.saturating_add(1));
        self.store_context.last
    }

    /// Whether the sequence can have given out this number. (A new sequence begins at the clock: past every former number, if the
    /// clock is right.)
    pub(crate) fn may_have_drawn(&self, number: u64) -> bool {
        0 < number && number < LAST_BY_CLOCK && number <= self.store_context.last.max(self.micros())
    }

    fn micros(&self) -> u64 {
        whole_micros(self.now)
    }

    /// By which periods go.
    pub(crate) fn micros_since_1970(&self) -> u64 {
        whole_micros(self.since_1970.unwrap_or(self.now))
    }

    /// When that grant was, in microseconds since 1970: its number, which is ahead of a clock that was set back; but numbers do not follow
    /// a clock that does not count from 1970.
    pub(crate) fn granted_at(&self, token: FencingToken) -> u64 {
        self.since_1970.map_or(token.get(), whole_micros)
    }

    pub(crate) fn next_token(&mut self) -> FencingToken {
        FencingToken::new(self.next_number())
    }

    /// The last number that was drawn.
    pub(crate) fn last_number(&self) -> u64 {
        self.store_context.last
    }

    /// Queues a message for the owner's client.
    pub(crate) fn tell(&mut self, owner: &OwnerId, kind: WakeUpKind) {
        self.store_context.wake_ups.push(WakeUp { lock: self.lock.clone(), owner: owner.clone(), kind });
    }

    /// The text as a label. The last label is used again if its text is the same, as when one client asks repeatedly.
    pub(crate) fn label(&mut self, text: &str) -> Arc<str> {
        if *self.store_context.last_label != *text {
            self.store_context.last_label = text.into();
        }
        Arc::clone(&self.store_context.last_label)
    }
}

/// The rule with one mistake in it. A model tries each, to show that it would find it. Only the [`OperationContext`] of a model makes any.
#[cfg_attr(not(feature = "model"), expect(unreachable_pub, reason = "it is public for a model"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A hold that is over is not dropped.
    OverIsKept,
    /// A newcomer that fits is granted before the queue is looked at.
    NewcomerBarges,
    /// The walk over absent waiters ends after one, and the newcomer gets the lock.
    NewcomerBargesAfterManyAbsent,
    /// An absent first waiter is waited for.
    DeadHeadIsWaitedFor,
    /// An absent first waiter that does not fit is waited for.
    BlockerIsWaitedFor,
    /// A first waiter that does not fit is absent as soon as no message would reach it.
    DeafBlockerIsAbsentAtOnce,
    /// An absent waiter leaves although it may not know its ticket.
    UnheardLeavesAtOnce,
    /// The ticket of an absent waiter does not count as served.
    AbsentIsNotServed,
    /// A waiter that fits passes an earlier one that does not.
    SmallerPasses,
    /// Hand-on ends after one grant.
    OneGrantAScript,
    /// A waiter fits by the number of permits of the last grant, and not by its own.
    FitsByTheLastGrant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_clock_and_grow_even_when_it_stands_still() {
        let (mut store_context, lock) = (StoreContext::after(999), LockName::new("x").unwrap());
        let mut next = |micros| {
            store_context
                .operation(&lock, Duration::from_micros(micros), &|_| Presence::Present)
                .next_number()
        };
        assert_eq!([next(1_000), next(1_000), next(0), next(1_500)], [1_000, 1_001, 1_002, 1_500]);
        assert_eq!([next(u64::MAX), next(u64::MAX)], [1 << 52, (1 << 52) + 1]);
        assert_eq!(store_context.last_number(), (1 << 52) + 1);
    }
}
