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
    /// An ask may begin at any time.
    NoEndOfAnAsk,
    /// A heartbeat may put a place back at any time.
    NoEndOfAHeartbeat,
    /// A force may take the lock at any time.
    NoEndOfAForce,
    /// The client's idea of the server's clock is ahead.
    EndIsAhead,
    /// A request with an unanswered attempt is not withdrawn after that one's end.
    NoWithdrawalAfterTheEnd,
    /// That withdrawal has no margin for a server's clock that is slow.
    WithdrawalWithoutMargin,
    /// It is left out if the end has passed when the answer to the last command comes.
    EndJudgedByTheAnswer,
    /// It is left out after any release that was sent after the end, even one that found no hold.
    AnyReleaseSettles,
    /// An answer that tells a holder of another grant of its request is ignored.
    NewsOfAnotherGrantIsIgnored,
    /// A request that was refused for its end does not ask again at once.
    TooLateIsNotRepeated,
    /// A renewal renews any hold of its request, whatever the token.
    RenewalOfAnyHold,
    /// Places by owner: the owner asks anew before the withdrawal after the end.
    NextRequestBeforeTheWithdrawal,
    /// Places by owner: an ask that is past its end is answered if its owner has a place.
    OwnersPlaceIsTheRequests,
    /// Places by owner: a withdrawal may remove the place at any time.
    NoEndOfAWithdrawal,
    /// Places by owner: the owner asks anew although a withdrawal was not answered, only its repeat.
    UnansweredWithdrawalIsForgotten,
}

impl Rules {
    /// Whether the send time of a granted command matters, besides the length of the grant.
    pub(crate) fn ages_of_grants_matter(self) -> bool {
        matches!(self, Rules::ValidFromTheAnswer | Rules::PushCountsFromAnyAnswer)
    }
}
