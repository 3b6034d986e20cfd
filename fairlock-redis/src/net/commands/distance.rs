//! Whether a server is far away: then callers wait for the way and not for the server, and more connections help.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A server is far away if no round trip is quicker. A trip in the same rack, or on the same machine, takes a tenth to a half of that.
const FAR: Duration = Duration::from_micros(500);
/// How many round trips have to be slow: on a busy machine a single one says little.
const ENOUGH: u32 = 16;
/// The mark of a quick trip: slow trips have other reasons than the distance.
const NEAR: u32 = 1 << 16;

/// What is known of the distance: how many round trips were slow while none was quick.
#[derive(Debug, Default)]
pub(super) struct Distance(AtomicU32);

impl Distance {
    /// The answers to what was sent at that time have just arrived; true once, when the server is found to be far away. After that,
    /// and after a quick round trip, no time is read.
    pub(super) fn is_found_far(&self, asked: Instant) -> bool {
        self.0.load(Ordering::Relaxed) < ENOUGH && self.took(asked.elapsed())
    }

    /// Whether the server was found to be far away.
    pub(super) fn is_far(&self) -> bool {
        (ENOUGH..NEAR).contains(&self.0.load(Ordering::Relaxed))
    }

    fn took(&self, trip: Duration) -> bool {
        if trip <= FAR {
            self.0.store(NEAR, Ordering::Relaxed);
            return false;
        }
        // Of the threads that count at the same time, one counts the last.
        self.0.fetch_add(1, Ordering::Relaxed) + 1 == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_nanos(500_001);

    #[test]
    fn many_slow_trips_and_no_quick_one_show_a_far_server_once() {
        let distance = Distance::default();
        assert!(!distance.is_far());
        assert_eq!((0..3 * ENOUGH).filter(|_| distance.took(SLOW)).count(), 1);
        assert!(distance.is_far());
        let (distance, long_ago) = (Distance::default(), Instant::now() - Duration::from_secs(1));
        let found: Vec<bool> = (0..20).map(|_| distance.is_found_far(long_ago)).collect();
        assert_eq!(found.iter().position(|found| *found), Some(15));
        assert_eq!(found.iter().filter(|found| **found).count(), 1);
    }

    #[test]
    fn one_quick_trip_shows_a_near_server() {
        for slow in 0..ENOUGH {
            let distance = Distance::default();
            (0..slow).for_each(|_| assert!(!distance.took(SLOW)));
            assert!(!distance.took(FAR));
            assert!((0..100).all(|_| !distance.is_found_far(Instant::now() - Duration::from_secs(1))));
            assert!(!distance.is_far());
        }
    }
}
