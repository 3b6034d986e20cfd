//! What an operation costs beside many other holders, and a hand-off before many waiters.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairlock_core::LockKind;
use fairlock_core::backend::{Acquired, Renewal, Wait};

use crate::support::World;

const WHAT: [&str; 5] = ["an acquire", "its repeat", "a try of a writer", "a renewal", "a release"];
/// Operations of each kind in a round.
const BATCH: u64 = 50;

/// The time of each operation beside this many readers: the least of some rounds.
fn times_beside(readers: u64) -> [Duration; 5] {
    let crowd = World::of(LockKind::ReadWrite);
    let get = |number| {
        crowd.clock.advance(Duration::from_micros(10)); // each ends at another time
        (number, crowd.granted(number, 1))
    };
    let mut holders: VecDeque<_> = (1..=readers).map(get).collect();
    let mut least = [Duration::MAX; 5];
    for round in 0..20 {
        let first = readers + BATCH * round + 1;
        let mut tokens = Vec::new();
        let mut time = |what: usize, operate: &mut dyn FnMut(usize, u64)| {
            let begun = Instant::now();
            (0..BATCH).for_each(|at| operate(at as usize, first + at));
            least[what] = least[what].min(begun.elapsed() / BATCH as u32);
        };
        time(0, &mut |_, number| tokens.push(crowd.granted(number, 1)));
        time(1, &mut |at, number| assert_eq!(crowd.granted(number, 1), tokens[at]));
        time(2, &mut |_, _| assert!(matches!(crowd.ask(0, u32::MAX, Wait::No), Ok(Acquired::Busy { .. }))));
        time(3, &mut |at, number| assert_eq!(crowd.renew(number, tokens[at]).unwrap(), Renewal::Renewed));
        holders.extend((first..).zip(tokens.iter().copied()));
        let oldest: Vec<_> = holders.drain(..BATCH as usize).collect();
        time(4, &mut |at, _| crowd.releases(oldest[at].0, oldest[at].1));
    }
    least
}

#[test]
fn the_cost_of_an_operation_does_not_grow_with_the_holders() {
    let [few, some, many] = [10, 1_000, 10_000].map(times_beside);
    for ((what, few), (some, many)) in WHAT.iter().zip(few).zip(some.into_iter().zip(many)) {
        println!("{what}: {few:?} beside 10 readers, {some:?} beside 1,000, {many:?} beside 10,000");
        assert!(many < 3 * some, "{what}: {some:?} beside 1,000 readers, {many:?} beside 10,000");
    }
}

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
