//! The wrong rules that were tried. Each is applied in one place of the model, under its name.

/// The rules of a lock that holds through a fail-over, or one of them broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The right rules.
    Right,
    /// A server with a new past grants at once.
    NoLife,
    /// The life is not in the data: a server that was flushed does not notice it.
    LifeNotInTheData,
    /// A life is a process: a promoted replica, or one that was demoted meanwhile, does not notice it.
    LifeIsTheProcess,
    /// The key of the life has no epoch.
    NoEpochInTheKey,
    /// A client with an older epoch than the key's is served.
    OldEpochIsServed,
    /// Sentinels may name a server again under its old epoch.
    OldEpochIsNamedAgain,
    /// In the grace a free lock is granted.
    FreeIsGrantedInTheGrace,
    /// In the grace a released or expired lock is handed on.
    HandedOnInTheGrace,
    /// In the grace a repeat of a request finds the grant that a copy has.
    FoundInTheGrace,
    /// In the grace a release does not remember the token of a hold that it did not find.
    EndedIsForgotten,
    /// A release does not remember the token of a hold if it found another one.
    EndedBesideAnotherHold,
    /// A reclaim takes the place of a hold with a greater token.
    ReclaimsInAnyOrder,
    /// A missing hold is reclaimed after the grace, too.
    ReclaimsAfterTheGrace,
    /// A belief counts from the answer instead of from the request.
    ValidFromTheAnswer,
    /// The answer to a renewal revives a belief that has ended.
    BeliefRevives,
    /// A repeat of a granted request counts as a new grant.
    RepeatProlongs,
    /// Only grants need a fresh proof, renewals don't.
    RenewalsWithoutProof,
    /// Requests need no proof at all.
    NoQuorum,
    /// A push counts from the last answer of any server.
    PushFromAnyServer,
    /// The server keeps a hold that it hands on for no longer than the place.
    HandedOnForThePlace,
    /// An ask may begin at any time.
    NoEndOfAnAsk,
    /// A missing hold is reclaimed at any time.
    NoEndOfAReclaim,
    /// A force may take the lock at any time.
    NoEndOfAForce,
    /// A force in the grace ends the hold that it finds, and no other.
    ForceEndsWhatItFinds,
    /// Among holds that take a part, the older one gives way to a reclaim, heard or not.
    ReclaimsByToken,
    /// A hold that was heard in this grace gives way.
    HeardGivesWay,
    /// The renewal of a hold that the server knows does not count as heard.
    RenewalsAreNotHeard,
    /// A reclaim that was sent in a former life counts as heard.
    LateReclaimsAreHeard,
    /// The same; and a hold that was heard gives way to no later one, even if one of the two takes all units.
    HeardStaysBesideAll,
    /// In the grace a release of a part ends all holds that were granted before.
    PartEndsAllBefore,
    /// A place that was lost is put back at the tail.
    PutBackAtTheTail,
}
