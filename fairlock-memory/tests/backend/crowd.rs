//! What an operation costs beside many other holders, and a hand-off before many waiters.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairlock_core::backend::{
    Acquire, Acquired, Backend, Hold, Place, Released, Renew, Renewal, RequestId, Wait, only,
};
use fairlock_core::{ClientId, FencingToken, OwnerId};

use crate::story::{Story, fair, read_write};

const LEASE: Duration = Duration::from_secs(30);
const WHAT: [&str; 5] = ["an acquire", "its repeat", "a try of a writer", "a renewal", "a release"];
/// Operations of each kind in a round.
const BATCH: u64 = 50;

/// The numbered requests of one client.
struct Crowd(Story, ClientId);

impl Crowd {
    fn of(story: Story) -> Crowd {
        let client = story.client_id(0);
        Crowd(story, client)
    }

    fn owner(&self, number: u64) -> OwnerId {
        OwnerId::new(&format!("{}:{number}", self.1))
    }

    fn asks(&self, number: u64, units: u32, wait: Wait) -> Acquired {
        let owner = self.owner(number);
        let lock = self.0.lock();
        let mut place = Place::new(&lock, &owner, RequestId::new(number));
        (place.units, place.wait) = (units, wait);
        only(self.0.backend.acquire(&[Acquire::new(place, LEASE)])).unwrap()
    }

    /// It has one unit, or gets it.
    fn token(&self, number: u64) -> FencingToken {
        match self.asks(number, 1, Wait::Forever) {
            Acquired::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    fn renews(&self, number: u64, token: FencingToken) {
        let owner = self.owner(number);
        let lock = self.0.lock();
        let hold = Hold::new(&lock, &owner, RequestId::new(number), token);
        let item = Renew::Hold { hold, holds: 1, lease: LEASE };
        assert_eq!(self.0.backend.renew(self.1, &[item]).remove(0).unwrap(), Renewal::Renewed);
    }

    fn releases(&self, (number, token): (u64, FencingToken)) {
        let owner = self.owner(number);
        let lock = self.0.lock();
        let hold = Hold::new(&lock, &owner, RequestId::new(number), token);
        assert_eq!(only(self.0.backend.release(&[hold])).unwrap(), Released::Released);
    }
}

/// The time of each operation beside this many readers: the least of some rounds.
fn times_beside(readers: u64) -> [Duration; 5] {
    let crowd = Crowd::of(read_write());
    let get = |number| {
        crowd.0.clock.advance(Duration::from_micros(10)); // each ends at another time
        (number, crowd.token(number))
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
        time(0, &mut |_, number| tokens.push(crowd.token(number)));
        time(1, &mut |at, number| assert_eq!(crowd.token(number), tokens[at]));
        time(2, &mut |_, _| assert!(matches!(crowd.asks(0, u32::MAX, Wait::No), Acquired::Busy { .. })));
        time(3, &mut |at, number| crowd.renews(number, tokens[at]));
        holders.extend((first..).zip(tokens.iter().copied()));
        let oldest: Vec<_> = holders.drain(..BATCH as usize).collect();
        time(4, &mut |at, _| crowd.releases(oldest[at]));
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
        let crowd = Crowd::of(fair());
        let queue = |number| assert!(matches!(crowd.asks(number, 1, Wait::Forever), Acquired::Queued { .. }));
        let mut token = crowd.token(0);
        (1..=waiters).for_each(queue);
        let mut times: Vec<Duration> = Vec::new();
        for holder in 0..500 {
            queue(waiters + holder + 1);
            let start = Instant::now();
            crowd.releases((holder, token));
            times.push(start.elapsed());
            token = crowd.token(holder + 1);
        }
        crowd.0.client(0).hears_whatever();
        times.sort();
        times[times.len() / 2]
    };
    let (short, long) = (median(10), median(20_000));
    assert!(long < short * 20, "{long:?} with a long queue, {short:?} with a short one");
}
