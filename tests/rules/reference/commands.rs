//! All possible events: as proptest draws and shrinks them, and as commands.

use fairlock_core::LockKind;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::words::{Ask, ClientNumber, Condition, Member, Millis, Patience, Renew};

pub(crate) const CLIENTS: usize = 3;
pub(crate) const LOCKS: usize = 2;
pub(crate) const OWNERS: u64 = 2;
pub(crate) const A_MONTH: Millis = 31 * 24 * 3_600_000;
/// Labels of owners; they may have spaces, and may be empty.
pub(crate) const LABELS: [&str; 3] = ["", "night shift", "billing"];

/// One command to a lock, or an event in the world.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Acquire {
        lock: usize,
        ask: Ask,
        patience: Patience,
    },
    RenewPlaces {
        lock: usize,
        ttl: Millis,
        places: Vec<Renew>,
    },
    RenewHold {
        lock: usize,
        member: Member,
        token: u64,
        count: u32,
        lease: Millis,
    },
    Release {
        lock: usize,
        member: Member,
        token: u64,
        units: u32,
    },
    /// The adopter has the member's request.
    Adopt {
        lock: usize,
        member: Member,
        token: u64,
        adopter: Member,
        lease: Millis,
    },
    Withdraw {
        lock: usize,
        member: Member,
    },
    ForceRelease {
        lock: usize,
    },
    TakeHold {
        lock: usize,
        member: Member,
        token: u64,
    },
    /// The server loses the hold silently.
    LoseHold {
        lock: usize,
    },
    /// The same with all places.
    LoseQueue {
        lock: usize,
    },
    /// The client's subscription is gone.
    GoesDeaf(ClientNumber),
    Hears(ClientNumber),
    Advance(Millis),
    Harm(Harm),
}

impl Command {
    /// The command's request. For a heartbeat: its first request, since all of them name the same kind.
    pub(crate) fn request(&self) -> u64 {
        match self {
            Command::Acquire { ask, .. } => ask.member.request,
            Command::RenewPlaces { places, .. } => places[0].member.request,
            Command::RenewHold { member, .. }
            | Command::Release { member, .. }
            | Command::Adopt { member, .. }
            | Command::Withdraw { member, .. }
            | Command::TakeHold { member, .. } => member.request,
            _ => 0,
        }
    }

    /// The lock of the command.
    pub(crate) fn lock(&self) -> Option<usize> {
        match self {
            Command::Acquire { lock, .. }
            | Command::RenewPlaces { lock, .. }
            | Command::RenewHold { lock, .. }
            | Command::Release { lock, .. }
            | Command::Adopt { lock, .. }
            | Command::Withdraw { lock, .. }
            | Command::ForceRelease { lock }
            | Command::TakeHold { lock, .. }
            | Command::LoseHold { lock }
            | Command::LoseQueue { lock } => Some(*lock),
            Command::GoesDeaf(_) | Command::Hears(_) | Command::Advance(_) | Command::Harm(_) => None,
        }
    }
}

/// What the rules do not know: faults of keys and clocks, and other programs that use the same keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    /// One key of the lock is gone (an index of `keys_of`).
    LoseKey {
        lock: usize,
        key: usize,
    },
    LoseAll,
    /// The lock's key is made endless by hand.
    Persists(usize),
    /// The server's clock is set back.
    SetBack(Millis),
    /// The last number is ahead of the clock.
    RunsAhead {
        lock: usize,
        by: Millis,
    },
    PlainTakes(usize),
    PlainGives(usize),
    /// The client says that it has lost its subscription.
    SaysDeaf(ClientNumber),
    SaysNothing(ClientNumber),
    /// An entry that is none of our requests, ahead of all others.
    Intrudes(usize),
    /// All that hold units and wait for them know a capacity of one unit more.
    Resizes(usize),
    /// From now on attempts arrive after their end, or in time again.
    ArriveLate(bool),
}

/// What proptest draws. As far as possible, a step keeps its meaning when earlier steps are shrunk away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Asks and waits; asks again if the owner already waits.
    Ask(Slot),
    /// One attempt, also by a waiting owner.
    Try(Slot),
    /// The same under a condition, which the request names only this time.
    AskIf(Slot, Condition),
    TryIf(Slot, Condition),
    /// Drops the request silently, and asks under a new number.
    AskAnew(Slot),
    /// Re-entry: the renewal carries the count.
    ReEnter(Slot),
    Renew(Slot),
    Release(Slot),
    ReleaseFormer(Slot),
    /// An owner of another client adopts the hold.
    Adopt(Slot),
    /// The same of a request that is over, or was adopted.
    AdoptFormer(Slot),
    Withdraw(Slot),
    WithdrawFormer(Slot),
    /// The heartbeat of a client; some of its waiters may be missing.
    Heartbeat {
        client: ClientNumber,
        lock: usize,
        missing: u64,
    },
    /// A heartbeat comes late: its request is over.
    HeartbeatOfFormer(Slot),
    Force(usize),
    /// The operator takes the hold of one request.
    Take(Slot),
    /// The hold of this lock is gone.
    Expire(usize),
    /// The queue of this lock is gone.
    LoseQueue(usize),
    /// Asks with a ticket that no lock has given out.
    Forge(Slot),
    /// The last command arrives twice: its answer was lost.
    Repeat,
    /// The client goes deaf, and its requests are silent.
    Crash(ClientNumber),
    GoesDeaf(ClientNumber),
    Hears(ClientNumber),
    Advance(Millis),
    /// Time passes while all live clients send their heartbeats.
    Live(Millis),
    /// All live clients send their heartbeats now.
    Heartbeats,
    Harm(Harm),
}

impl Step {
    /// The parts of a step; each is chosen after the one before was executed.
    pub(crate) fn parts(self, scale: Scale) -> Vec<Step> {
        let Step::Live(by) = self else { return vec![self] };
        let pause = scale.ttls[0] / 3;
        let times = by / pause;
        let heartbeats = [Step::Advance(pause), Step::Heartbeats].repeat(usize::try_from(times).unwrap());
        heartbeats.into_iter().chain([Step::Advance(by % pause)]).collect()
    }
}

/// An owner and a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) client: ClientNumber,
    pub(crate) owner: u64,
    pub(crate) lock: usize,
    /// The index of the lease and time to live, and of the units.
    pub(crate) choice: usize,
}

impl Slot {
    /// One unit of an exclusive lock. Most requests for others are small.
    pub(crate) fn units(self, kind: LockKind) -> u32 {
        let capacity = kind.capacity();
        [1, 1, 1, 2.min(capacity), capacity / 2 + 1, capacity][self.choice / 6 % 6]
    }
}

/// The possible values in commands; the subjects explain why they differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) leases: [Millis; 3],
    pub(crate) ttls: [Millis; 2],
    pub(crate) time: Time,
    /// Of all locks.
    pub(crate) kind: LockKind,
}

/// In a semaphore of so many permits every other request names two permits more.
pub(crate) const MIXED: u32 = 3;

/// The kind of lock that a request names.
pub(crate) fn kind_of(kind: LockKind, request: u64) -> LockKind {
    match kind {
        LockKind::Semaphore { permits: MIXED } if request % 2 == 1 => {
            LockKind::Semaphore { permits: MIXED + 2 }
        }
        kind => kind,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// No command comes in the last millisecond of a hold.
    Virtual,
    /// With [`Harm`].
    VirtualWithHarm,
}

pub(crate) fn steps(scale: Scale, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let client = || 0..CLIENTS;
    // Most steps concern one lock.
    let lock = || prop_oneof![5 => Just(0), 1 => 1..LOCKS];
    // With several holders fewer must wait, and fewer releases end a wait.
    let (choices, keys, asks, releases) = match scale.kind.is_shared() {
        false => (6, 3, 14, 9),
        true => (36_usize, 4_usize, 30, 25),
    };
    let slot = || {
        (client(), 0..OWNERS, lock(), 0..choices).prop_map(|(client, owner, lock, choice)| Slot {
            client,
            owner,
            lock,
            choice,
        })
    };
    let periods = prop::sample::select(vec![
        Condition::Every(1_000),
        Condition::Every(60_000),
        Condition::Every(A_MONTH),
        Condition::NotWithin(4_000),
        Condition::NotWithin(A_MONTH),
    ]);
    let happens = prop_oneof![
        asks => slot().prop_map(Step::Ask),
        3 => slot().prop_map(Step::Try),
        3 => (slot(), 0..3_u64).prop_map(|(slot, most)| Step::AskIf(slot, Condition::Behind(most))),
        // Seldom: no case applies to a lock from then on.
        1 => (slot(), periods).prop_map(|(slot, condition)| Step::TryIf(slot, condition)),
        2 => slot().prop_map(Step::AskAnew),
        2 => slot().prop_map(Step::ReEnter),
        2 => slot().prop_map(Step::Renew),
        releases => slot().prop_map(Step::Release),
        1 => slot().prop_map(Step::ReleaseFormer),
        3 => slot().prop_map(Step::Adopt),
        1 => slot().prop_map(Step::AdoptFormer),
        2 => slot().prop_map(Step::Withdraw),
        1 => slot().prop_map(Step::WithdrawFormer),
        1 => slot().prop_map(Step::Forge),
        5 => (client(), lock(), 0..16_u64)
            .prop_map(|(client, lock, missing)| Step::Heartbeat { client, lock, missing }),
        1 => slot().prop_map(Step::HeartbeatOfFormer),
        1 => lock().prop_map(Step::Force),
        1 => lock().prop_map(Step::Expire),
        1 => lock().prop_map(Step::LoseQueue),
        3 => Just(Step::Repeat),
        1 => client().prop_map(Step::Crash),
        1 => client().prop_map(Step::GoesDeaf),
        2 => client().prop_map(Step::Hears),
    ];
    let [short, .., long] = scale.leases;
    let [ttl, _] = scale.ttls;
    let passes = prop_oneof![
        3 => (0..ttl).prop_map(Step::Advance),
        // Just before, at and after the critical times.
        2 => (prop::sample::select(vec![ttl / 2, ttl, short, long, 60_000, 120_000]), 0..3_u64)
            .prop_map(|(about, more)| Step::Advance(about + more - 1)),
        2 => (0..long).prop_map(Step::Live),
    ];
    let harm = prop_oneof![
        4 => (lock(), 0..keys).prop_map(|(lock, key)| Harm::LoseKey { lock, key }),
        1 => Just(Harm::LoseAll),
        1 => lock().prop_map(Harm::Persists),
        2 => (0..long).prop_map(Harm::SetBack),
        2 => (lock(), 0..long).prop_map(|(lock, by)| Harm::RunsAhead { lock, by }),
        2 => lock().prop_map(Harm::PlainTakes),
        2 => lock().prop_map(Harm::PlainGives),
        2 => client().prop_map(Harm::SaysDeaf),
        2 => client().prop_map(Harm::SaysNothing),
        1 => lock().prop_map(Harm::Intrudes),
        2 => lock().prop_map(Harm::Resizes),
        2 => Just(Harm::ArriveLate(true)),
        6 => Just(Harm::ArriveLate(false)),
    ];
    let happens = match scale.kind.is_shared() {
        false => happens.boxed(),
        true => prop_oneof![40 => happens, 1 => slot().prop_map(Step::Take)].boxed(),
    };
    let step = match scale.time {
        Time::VirtualWithHarm => {
            prop_oneof![20 => happens, 4 => passes, 1 => harm.prop_map(Step::Harm)].boxed()
        }
        _ => prop_oneof![4 => happens, 1 => passes].boxed(),
    };
    vec(step, 1..=most)
}
