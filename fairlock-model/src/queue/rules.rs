//! The wrong rules that were tried. Each is applied in one place of the model, or is a mistake in the rule itself, under its name.

use fairlock_rules::Wrong;

/// The rules of the queue, or one of them broken.
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
    /// A heartbeat puts back a place that is gone.
    HeartbeatRestores,
    /// An absent waiter that may not know its ticket leaves the queue.
    UnheardLeavesAtOnce,
    /// The ticket of an absent waiter does not count as served.
    AbsentIsNotServed,
    /// The first waiter that is heard gets the lock of a lost queue.
    LostQueueDoesNotRest,
    /// Every answer restarts the time of a pushed grant, even one that reports the grant itself.
    PushCountsFromAnyAnswer,
    /// A pushed grant is valid for a whole lease from now on, whatever is left of the place.
    PushWithoutDeadline,
    /// No margin for clocks that run at different rates.
    NoMargin,
    /// All wait for an absent first waiter.
    DeadHeadIsWaitedFor,
    /// A newcomer that fits is granted although others wait.
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
    /// A force may take the lock at any time.
    NoEndOfAForce,
    /// The client's idea of the server's clock is ahead.
    EndIsAhead,
    /// A request with an unanswered attempt is not withdrawn after the attempt's end.
    NoWithdrawalAfterTheEnd,
    /// The withdrawal after an attempt's end has no margin for a server's clock that is slow.
    WithdrawalWithoutMargin,
    /// That withdrawal is left out if the end has passed when the answer to the last command comes.
    EndJudgedByTheAnswer,
    /// That withdrawal is left out after any release sent after the end, even if the release found no hold.
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
    /// A waiter that fits passes an earlier one that does not.
    SmallerPasses,
    /// The queue is looked at before the holds that are over are dropped.
    CapacityBeforeEnds,
    /// A hold that is over is dropped, and its units stay taken.
    EndFreesNothing,
    /// A release gives its units back although it finds no hold.
    FreedTwice,
    /// A repeat of a granted request is granted anew.
    RepeatIsGrantedAnew,
    /// A withdrawal leaves the queue, and grants nothing.
    WithdrawalWithoutHandOn,
    /// Hand-on ends after one grant.
    OneGrantAScript,
    /// All wait for an absent first waiter that does not fit.
    BlockerIsWaitedFor,
    /// A first waiter that does not fit is absent as soon as it is not subscribed.
    DeafBlockerIsAbsentAtOnce,
    /// A waiter fits by the capacity that the last grant named, and not by its own.
    FitsByTheLastGrant,
    /// A hold that is over, but not dropped, is renewed.
    EndedIsRenewed,
    /// A renewal raises the ends of all holds.
    RenewalRaisesAll,
    /// All holds end together, at the last hold's end.
    OneEnd,
    /// Ends are on the queue clock, which hardly advances while no script runs.
    EndsOnTheQueueClock,
    /// The first in the queue looks when the last hold ends.
    LastEnd,
    /// The first in the queue does not look when a hold ends, but with its next heartbeat.
    NoLookAtEnds,
}

impl Rules {
    /// The mistake in the rule itself.
    pub fn mistake(self) -> Option<Wrong> {
        Some(match self {
            Rules::CapacityBeforeEnds | Rules::EndFreesNothing | Rules::EndedIsRenewed => Wrong::OverIsKept,
            Rules::NewcomerBarges => Wrong::NewcomerBarges,
            Rules::NewcomerBargesAfterManyAbsent => Wrong::NewcomerBargesAfterManyAbsent,
            Rules::DeadHeadIsWaitedFor => Wrong::DeadHeadIsWaitedFor,
            Rules::BlockerIsWaitedFor => Wrong::BlockerIsWaitedFor,
            Rules::DeafBlockerIsAbsentAtOnce => Wrong::DeafBlockerIsAbsentAtOnce,
            Rules::UnheardLeavesAtOnce => Wrong::UnheardLeavesAtOnce,
            Rules::AbsentIsNotServed => Wrong::AbsentIsNotServed,
            Rules::SmallerPasses => Wrong::SmallerPasses,
            Rules::OneGrantAScript => Wrong::OneGrantAScript,
            Rules::FitsByTheLastGrant => Wrong::FitsByTheLastGrant,
            _ => return None,
        })
    }
}
