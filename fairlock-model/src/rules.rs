//! The rules that were tried and are wrong. Each is applied in one place of the model, found by its name.

/// The rules of the hand-off, or the same with one of them broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// As PROTOCOL.md has them.
    Right,
    /// A lease counts from its answer, not from before the request was sent.
    ValidFromTheAnswer,
    /// A pushed grant is believed by whoever waits, without the request number.
    PushWithoutRequest,
    /// A pushed grant is believed though its token is older than the place.
    PushOlderThanThePlace,
    /// Every answer says from when a pushed grant counts, also one that tells of the grant itself.
    PushCountsFromAnyAnswer,
    /// A pushed grant is good for a whole lease from now on, whatever is left of the place.
    PushWithoutDeadline,
    /// Nothing is taken off for clocks that run at different rates.
    NoMargin,
    /// A first in line that is absent is waited for.
    DeadHeadIsWaitedFor,
    /// Whoever asks when the lock is free gets it, though others wait.
    NewcomerBarges,
    /// The walk over absent waiters ends after one, and the newcomer gets the lock.
    NewcomerBargesAfterManyAbsent,
    /// A request of the owner that holds the lock takes the hold over.
    LateRequestTakesOver,
    /// A release takes the lock from whoever holds it.
    ReleaseOfAnyHold,
    /// A wait that ends in vain tells the server nothing.
    PlaceKeptOnTimeOut,
    /// Nobody looks by himself: all wait for a push.
    NobodyLooks,
}

impl Rules {
    /// Whether it matters when a command was sent that was answered with a grant, or only how long the grant lasts.
    pub(crate) fn ages_of_grants_matter(self) -> bool {
        matches!(self, Rules::ValidFromTheAnswer | Rules::PushCountsFromAnyAnswer)
    }
}
