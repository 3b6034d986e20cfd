//! The wrong rules that were tried. Each is applied in one place of the model, under its name.

/// The rules of the weighted line, or one of them broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The right rules.
    Right,
    /// A waiter that fits passes an earlier one that does not.
    SmallerPasses,
    /// A newcomer that fits is granted although others wait.
    NewcomerBarges,
    /// The same, only where the loop stopped because it had granted as many as one script may.
    NewcomerBargesBetweenParts,
    /// The line is looked at before the holds that are over are dropped.
    CapacityBeforeEnds,
    /// A hold that is over is dropped, and its units stay taken.
    EndFreesNothing,
    /// A release gives its units back although it finds no hold.
    FreedTwice,
    /// A request whose own hold is over, but not dropped, is granted another one beside it.
    OwnEndedHoldStays,
    /// A repeat of a granted request is granted anew.
    RepeatIsGrantedAnew,
    /// A withdrawal leaves the line, and grants nothing.
    WithdrawalWithoutHandOn,
    /// Hand-on ends after one grant.
    OneGrantAScript,
    /// An absent first in line that does not fit is waited for.
    BlockerNeverParked,
    /// A first in line that does not fit is absent as soon as it is not subscribed.
    DeafBlockerParkedAtOnce,
    /// A parked waiter takes one unit from then on.
    ParkedTakesOne,
    /// A newcomer is granted by the capacity that it says, whatever that of the lock.
    NewcomersCapacity,
    /// The loop grants places by the capacity that each says.
    CapacityOfEachPlace,
    /// A hold that is over, but not dropped, is renewed.
    EndedIsRenewed,
    /// A renewal raises the ends of all holds.
    RenewalRaisesAll,
    /// All holds end together: when the last of them would.
    OneEnd,
    /// Ends are on the line clock, which hardly advances while no script runs.
    EndsOnTheLineClock,
    /// The first in line looks when the last hold ends.
    LastEnd,
    /// The first in line does not look when a hold ends, but with its next heartbeat.
    NoLookAtEnds,
    /// The renewal of a hold drops those that are over, and hands nothing on.
    RenewalDropsOthers,
    /// The renewal of a hold drops those that are over, and hands on. It costs more, and is not wrong.
    RenewalHandsOn,
}
