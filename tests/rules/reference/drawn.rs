//! Commands that proptest draws, until a judge rejects them; it shrinks a difference. They are the same in each run, but for the night, which
//! draws its own. `FAIRLOCK_CASES=5000` runs longer. `FAIRLOCK_SEED`, which a failure prints, repeats a run.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use fairlock_core::LockKind;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::commands::{MIXED, Scale, Step, Time, steps};

/// A fair lock, a semaphore, a read-write lock, and a semaphore of which requests name different numbers of permits.
pub(crate) static KINDS: [LockKind; 4] = [
    LockKind::Fair,
    LockKind::Semaphore { permits: 4 },
    LockKind::ReadWrite,
    LockKind::Semaphore { permits: MIXED },
];

/// In the same order, and how many cases of each.
pub(crate) fn kinds(cases: [u32; 4]) -> impl Iterator<Item = (LockKind, u32)> {
    KINDS.into_iter().zip(cases)
}

pub(crate) fn scale(time: Time, kind: LockKind) -> Scale {
    let ttls = match time {
        // One time to live is what the scripts take for that of a queue whose state was lost.
        Time::VirtualWithHarm if kind.is_shared() => [5_000, 9_000],
        _ => [6_000, 9_000],
    };
    Scale { leases: [3_000, 12_000, 30_000], ttls, time, kind }
}

/// Draws sequences of commands until the judge rejects one, for at most `cases` cases.
pub(crate) fn check(scale: Scale, cases: u32, judge: &mut dyn FnMut(&[Step]) -> Result<(), String>) {
    let cases = from_env("FAIRLOCK_CASES").map_or(cases, |cases| u32::try_from(cases).unwrap());
    let drawn = || if cfg!(feature = "night") { RandomState::new().build_hasher().finish() } else { 1 };
    let seed = from_env("FAIRLOCK_SEED").unwrap_or_else(drawn);
    if let Err(story) = look_for_a_case(scale, cases, seed, 2000, judge) {
        panic!("FAIRLOCK_SEED={seed}:\n{story}");
    }
}

/// The smallest case found that the judge rejects.
pub(crate) fn look_for_a_case(
    scale: Scale,
    cases: u32,
    seed: u64,
    max_shrink_iters: u32,
    judge: &mut dyn FnMut(&[Step]) -> Result<(), String>,
) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let judge = RefCell::new(judge);
    let result =
        runner.run(&steps(scale, 60), |steps| (judge.borrow_mut())(&steps).map_err(TestCaseError::fail));
    match result {
        Ok(()) => Ok(()),
        Err(TestError::Fail(story, _)) => Err(story.to_string()),
        Err(TestError::Abort(reason)) => panic!("the drawing gave up: {reason}"),
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}
