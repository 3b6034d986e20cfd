//! How long to pause after a failure: not at all after the first, then 50 ms, doubling to 1 s, with jitter so that clients
//! do not retry in step.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The pause after so many failures in a row: between half of the full pause and all of it. There is none after the first:
/// that usually means only that an idle connection was closed.
pub(crate) fn pause(failures: u32) -> Duration {
    pause_up_to(failures, LONGEST)
}

/// The same, with another longest pause.
pub(crate) fn pause_up_to(failures: u32, longest: Duration) -> Duration {
    if failures <= 1 {
        return Duration::ZERO;
    }
    let full = FIRST.saturating_mul(1 << (failures - 2).min(10)).min(longest);
    full / 2 + (full / 2).mul_f64((random() >> 11) as f64 / (1_u64 << 53) as f64)
}

/// A number that no other process can guess: a counter through a keyed hash. Each thread takes a block of the counter, so that
/// threads seldom meet at it.
pub(crate) fn random() -> u64 {
    const BLOCK: u64 = 1024;
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static BLOCKS: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    let number = match NEXT.get() {
        at_the_end if at_the_end % BLOCK == 0 => BLOCKS.fetch_add(BLOCK, Ordering::Relaxed),
        next => next,
    };
    NEXT.set(number + 1);
    KEY.hash_one(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_in_their_bounds() {
        for (failures, full) in [(0, 0), (1, 0), (2, 50), (3, 100), (6, 800), (7, 1000), (u32::MAX, 1000)] {
            for _ in 0..50 {
                let pause = pause(failures);
                assert!(pause >= Duration::from_millis(full) / 2 && pause <= Duration::from_millis(full));
            }
        }
    }

    #[test]
    fn random_numbers_differ_in_all_threads() {
        let draw = || (0..5_000).map(|_| random()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let drawn = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        assert_eq!(drawn.collect::<std::collections::HashSet<u64>>().len(), 20_000);
    }
}
