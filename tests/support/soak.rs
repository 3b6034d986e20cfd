//! A long run under faults. Worker processes take turns through proxies while a seeded schedule injects faults. After
//! each round the histories are checked for violations.
//!
//! | module | topic |
//! | --- | --- |
//! | [`worker`] | one process of threads that take turns |
//! | [`crew`] | the processes, their proxies, and their reports at rest |
//! | [`nemesis`] | which faults are injected, when and where, by the seed |
//! | [`verdict`] | the checkers of a round |
//! | [`remains`] | what must be gone when all rest: keys, places, connections, threads, memory |
//! | [`run`] | rounds until the targets are reached, and the summary |

pub mod crew;
pub mod nemesis;
pub mod remains;
pub mod run;
pub mod verdict;
pub mod worker;

use std::time::Duration;

use fairlock::LockKind;

/// The locks of all kinds.
pub const LOCKS: [&str; 10] =
    ["fair-0", "fair-1", "fair-2", "fair-3", "fair-4", "fair-5", "plain-0", "plain-1", "prices", "permits"];

/// What kind of lock this is.
pub fn kind_of(lock: &str) -> LockKind {
    match lock {
        "prices" => LockKind::ReadWrite,
        "permits" => LockKind::Semaphore { permits: 5 },
        plain if plain.starts_with("plain") => LockKind::Plain,
        _ => LockKind::Fair,
    }
}

/// The lease of all holds.
pub const LEASE: Duration = Duration::from_millis(2000);
/// The places' time to live.
pub const PLACE: Duration = Duration::from_millis(1000);
/// Connecting, and each answer.
pub const ANSWER: Duration = Duration::from_millis(500);
/// How long a call goes on without any answer.
pub const OUTAGE: Duration = Duration::from_secs(10);
/// The longest fault.
pub const LONGEST_FAULT: Duration = Duration::from_millis(3500);
/// How late an event may be on a busy machine.
pub const SLACK: Duration = Duration::from_secs(2);

/// Random choices that follow from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Zero works like any other seed.
    pub fn new(seed: u64) -> Dice {
        // Neighbouring seeds must give unrelated sequences (splitmix64).
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Dice((mixed ^ (mixed >> 31)).max(1))
    }

    /// A number less than `n`.
    pub fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).expect("an index")
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// A duration in milliseconds from this range.
    pub fn millis(&mut self, range: std::ops::RangeInclusive<u64>) -> Duration {
        Duration::from_millis(range.start() + self.roll(range.end() - range.start() + 1))
    }
}
