//! What a hand-off costs before many waiters.

use std::time::{Duration, Instant};

use fairlock_core::LockKind;

use crate::support::World;

/// A hand off costs no more with twenty thousand waiters than with ten. The median of many hand-offs. Work for each waiter would
/// make the long queue some hundred times slower.
#[test]
fn a_hand_off_costs_no_more_with_many_waiters() {
    let median = |waiters: u64| {
        let crowd = World::of(LockKind::Fair);
        let queue = |number| _ = crowd.queued(number, 1);
        let mut token = crowd.granted(0, 1);
        (1..=waiters).for_each(queue);
        let mut times: Vec<Duration> = Vec::new();
        for holder in 0..500 {
            queue(waiters + holder + 1);
            let start = Instant::now();
            crowd.releases(holder, token);
            times.push(start.elapsed());
            token = crowd.granted(holder + 1, 1);
        }
        times.sort();
        times[times.len() / 2]
    };
    let (short, long) = (median(10), median(20_000));
    assert!(long < short * 20, "{long:?} with a long queue, {short:?} with a short one");
}
