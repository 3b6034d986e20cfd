//! The wrong rules that were tried. Each is applied in one place of the model, under its name.

/// The rules of the hand-off, or one of them broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The right rules, as in the scripts and in core.
    Right,
    /// A lease counts from its answer instead of from its request.
    ValidFromTheAnswer,
    /// A pushed grant is believed although its token is older than the place.
    PushOlderThanThePlace,
    /// A push is compared with the ticket of the place, which stays the same when the place is put back.
    PushComparedWithTheTicket,
    /// A place that is gone is put back behind later tickets.
    PutBackAtTheTail,
    /// A heartbeat puts back a place that may have been granted the lock.
    HeartbeatPutsBackTheServed,
    /// The first waiter that is heard gets the lock of a lost line.
    LostLineDoesNotRest,
    /// Every answer restarts the time of a pushed grant, even one that reports the grant itself.
    PushCountsFromAnyAnswer,
    /// A pushed grant is valid for a whole lease from now on, whatever is left of the place.
    PushWithoutDeadline,
    /// No margin for clocks that run at different rates.
    NoMargin,
    /// An absent first in line is waited for.
    DeadHeadIsWaitedFor,
    /// A newcomer gets a free lock although others wait.
    NewcomerBarges,
    /// The walk over absent waiters ends after one, and the newcomer gets the lock.
    NewcomerBargesAfterManyAbsent,
    /// Any request of the owner takes over its hold.
    LateRequestTakesOver,
    /// A release releases any hold.
    ReleaseOfAnyHold,
    /// A wait that times out tells the server nothing.
    PlaceKeptOnTimeOut,
    /// No waiter asks by itself: all wait for a push.
    NobodyLooks,
}

impl Rules {
    /// Whether the send time of a granted command matters, besides the length of the grant.
    pub(crate) fn ages_of_grants_matter(self) -> bool {
        matches!(self, Rules::ValidFromTheAnswer | Rules::PushCountsFromAnyAnswer)
    }
}
