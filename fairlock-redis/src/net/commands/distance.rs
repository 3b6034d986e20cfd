//! Whether a server is far away: then callers wait for the way and not for the server, and more connections help.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A server is far away if no round trip is quicker. A trip in the same rack, or on the same machine, takes a tenth to a half of that.
const FAR: Duration = Duration::from_micros(500);
/// What a command adds to a trip at most, on a busy server.
const WORK: Duration = Duration::from_micros(50);
/// How many round trips have to be slow: on a busy machine a single one says little.
const ENOUGH: u32 = 16;
/// How many after a quick trip. Then slow trips have other reasons as a rule, but another server, which is far away, may take over the
/// address.
const ENOUGH_ONCE_NEAR: u32 = 1000;

/// How many slow round trips, and no quick one, are still to come until the server is found to be far away; zero once it is.
#[derive(Debug)]
pub(super) struct Distance(AtomicU32);

impl Distance {
    pub(super) fn new() -> Distance {
        Distance(AtomicU32::new(ENOUGH))
    }

    /// The answers to so many commands, sent at that time, have just arrived; true once, when the server is found to be far away. After
    /// that no time is read.
    pub(super) fn is_found_far(&self, asked: Instant, commands: usize) -> bool {
        !self.is_far() && self.took(asked.elapsed(), commands)
    }

    /// Whether the server was found to be far away.
    pub(super) fn is_far(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn took(&self, trip: Duration, commands: usize) -> bool {
        let is_slow = trip > FAR + WORK.saturating_mul(u32::try_from(commands).unwrap_or(u32::MAX));
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
            0 => None, // another thread has just found it
            ENOUGH_ONCE_NEAR if !is_slow => None,
            left => Some(if is_slow { left - 1 } else { ENOUGH_ONCE_NEAR }),
        });
        is_slow && counted == Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_nanos(550_001);
    const QUICK: Duration = Duration::from_micros(550);

    #[test]
    fn many_slow_trips_and_no_quick_one_show_a_far_server_once() {
        let distance = Distance::new();
        assert!(!distance.is_far());
        assert_eq!((0..3 * ENOUGH).filter(|_| distance.took(SLOW, 1)).count(), 1);
        assert!(distance.is_far() && !distance.took(QUICK, 1) && distance.is_far());
        let (distance, long_ago) = (Distance::new(), Instant::now() - Duration::from_secs(1));
        let found: Vec<bool> = (0..20).map(|_| distance.is_found_far(long_ago, 1)).collect();
        assert_eq!(found.iter().position(|found| *found), Some(15));
        assert_eq!(found.iter().filter(|found| **found).count(), 1);
    }

    #[test]
    fn a_near_server_that_moves_away_is_found_far_later() {
        for slow in 0..ENOUGH {
            let distance = Distance::new();
            for slow in [slow, ENOUGH_ONCE_NEAR - 1] {
                (0..slow).for_each(|_| assert!(!distance.took(SLOW, 1)));
                assert!(!distance.took(QUICK, 1) && !distance.is_far());
            }
            assert!((1..ENOUGH_ONCE_NEAR).all(|_| !distance.took(SLOW, 1)));
            assert!(!distance.is_far() && distance.took(SLOW, 1) && distance.is_far());
        }
    }

    #[test]
    fn a_server_with_much_to_do_is_not_far() {
        let distance = Distance::new();
        assert!((0..3 * ENOUGH_ONCE_NEAR).all(|_| !distance.took(10 * QUICK, 100)));
        assert!((0..ENOUGH_ONCE_NEAR).any(|_| distance.took(10 * QUICK, 99)));
    }
}
