//! How long to pause after a failure: not at all after the first, then 50 ms, doubling to 1 s, with jitter so that clients
//! do not retry in step.

use std::time::Duration;

use crate::ids::random;

const FIRST: Duration = Duration::from_millis(50);
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The pause after this many failures in a row: between half of the full pause and all of it, so that clients do not retry in step.
/// There is none after the first: that usually means only that an idle connection was closed. After the second it is 50 ms, and
/// doubles to 1 s. For a backend: before it connects again.
pub fn pause(failures: u32) -> Duration {
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
}
