//! The rule with one mistake in it. A model tries each, to show that it would find it.
#![cfg_attr(not(feature = "model"), expect(unreachable_pub, reason = "it is public for a model"))]

/// One mistake. Only the [`OperationContext`](crate::OperationContext) of a model makes any.
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
}
