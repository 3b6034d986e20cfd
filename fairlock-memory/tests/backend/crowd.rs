//! What an operation costs beside many other holders.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Acquired, Released, Renewal, Wait};

use crate::support::Fixture;

const WHAT: [&str; 5] = ["an acquire", "its repeat", "a try of a writer", "a renewal", "a release"];
/// Operations of each kind in a round.
const BATCH: u32 = 50;

/// The time of each operation beside this many readers: the least of some rounds.
fn times_beside(readers: u32) -> [Duration; 5] {
    let fixture = Fixture::read_write();
    let client = fixture.client();
    let writer = fixture.request(&client, 0).taking(u32::MAX);
    let newcomer = |number: u32| fixture.request(&client, u64::from(number) + 1);
    let mut holders: VecDeque<_> = (0..readers)
        .map(|number| {
            fixture.clock.advance(Duration::from_micros(10)); // each ends at another time
            let reader = newcomer(number);
            let token = reader.gets_it();
            (reader, token)
        })
        .collect();
    let mut least = [Duration::MAX; 5];
    for round in 0..20 {
        let askers: Vec<_> = (0..BATCH).map(|number| newcomer(readers + BATCH * round + number)).collect();
        let mut tokens = Vec::new();
        let mut time = |what: usize, operate: &mut dyn FnMut(usize)| {
            let begun = Instant::now();
            (0..BATCH as usize).for_each(&mut *operate);
            least[what] = least[what].min(begun.elapsed() / BATCH);
        };
        time(0, &mut |at| tokens.push(askers[at].gets_it()));
        time(1, &mut |at| assert_eq!(askers[at].gets_it(), tokens[at]));
        time(2, &mut |_| assert!(matches!(writer.acquire(Wait::No), Ok(Acquired::Busy { .. }))));
        time(3, &mut |at| assert_eq!(askers[at].renew_hold(tokens[at], 1).unwrap(), Renewal::Renewed));
        holders.extend(askers.iter().cloned().zip(tokens.iter().copied()));
        let oldest: Vec<_> = holders.drain(..BATCH as usize).collect();
        time(4, &mut |at| assert_eq!(oldest[at].0.release(oldest[at].1).unwrap(), Released::Released));
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
