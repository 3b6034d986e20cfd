//! The rule with one mistake in it. A model tries each, to show that it would find it.
#![cfg_attr(not(feature = "model"), expect(unreachable_pub, reason = "it is public for a model"))]

/// One mistake. Only a [`Turn`](crate::Turn) of a model makes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A hold that is over is not dropped.
    OverIsKept,
    /// A newcomer that fits is granted before the line is looked at.
    NewcomerBarges,
    /// The walk over absent waiters ends after one, and the newcomer gets the lock.
    NewcomerBargesAfterManyAbsent,
    /// An absent first in line is waited for.
    DeadHeadIsWaitedFor,
    /// An absent first in line that does not fit is waited for.
    BlockerNeverParked,
    /// A first in line that does not fit is absent as soon as no message would reach it.
    DeafBlockerParkedAtOnce,
    /// A waiter that fits passes an earlier one that does not.
    SmallerPasses,
    /// Hand-on ends after one grant.
    OneGrantAScript,
}
