//! The line on a clock of seconds: order, parking, sweeping, and its own clock.

use super::*;
use crate::turn::Desk;
use fairlock_core::backend::LockId;
use fairlock_core::{LockKind, LockName};

/// A line of `c:0`, `c:1`, ... with a time to live of 5 s, on a clock of seconds.
struct Fixture {
    lock: LockId,
    line: Line,
    calls: u64,
}

impl Fixture {
    fn of(waiters: u64) -> Fixture {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
        let mut fixture = Fixture { lock, line: Line::default(), calls: 0 };
        (0..waiters).for_each(|number| fixture.beat(number, 0, true));
        fixture
    }

    fn beat(&mut self, number: u64, at: u64, joins: bool) {
        self.beat_with(number, at, joins, 5);
    }

    fn beat_with(&mut self, number: u64, at: u64, joins: bool, ttl: u64) {
        let owner = owner(number);
        let mut place = Place::new(&self.lock, &owner, RequestId::new(number));
        place.ttl = Duration::from_secs(ttl);
        self.calls += 1;
        let call = self.calls;
        let heartbeat =
            Heartbeat { place: &place, lease: Duration::from_secs(30), label: Some("label"), call };
        let now = Duration::from_secs(at);
        match joins {
            true => self.line.join(heartbeat, 1, now), // the first ticket is 1
            false => assert!(self.line.refresh(heartbeat, now)),
        }
        self.line.sweep(call);
    }

    fn first_at(&mut self, at: u64) -> Option<u64> {
        self.first_listening(at, |_| true)
    }

    /// The ticket of the first present waiter, where those of these numbers listen.
    fn first_listening(&mut self, at: u64, listens: impl Fn(u64) -> bool) -> Option<u64> {
        let is_listening = |owner: &OwnerId| listens(owner.as_str()["c:".len()..].parse().unwrap());
        let mut desk = Desk::default();
        let turn = desk.turn(&self.lock.name, Duration::from_secs(at), &is_listening);
        self.line.first_present(&turn, 1).map(|(ticket, _)| ticket)
    }

    /// A heartbeat of this waiter every two seconds.
    fn beat_from_to(&mut self, number: u64, start: u64, end: u64) {
        (start..=end).step_by(2).for_each(|at| self.beat(number, at, false));
    }

    /// What is left of the time of the waiter with this rank.
    fn left(&self, rank: u64, at: u64) -> Option<Duration> {
        self.line.inspect(Duration::from_secs(at), rank..rank + 1)[0].place_left
    }

    fn rank(&self, number: u64) -> Option<u64> {
        self.line.rank_of(&owner(number), RequestId::new(number))
    }
}

fn owner(number: u64) -> OwnerId {
    OwnerId::new(&format!("c:{number}"))
}

#[test]
fn ranks_are_right_after_waiters_left_were_parked_or_came_back() {
    let mut fixture = Fixture::of(300);
    assert_eq!(fixture.rank(299), Some(299));
    for number in (0..300).step_by(3) {
        fixture.line.remove(&owner(number), RequestId::new(number));
    }
    assert_eq!((fixture.rank(299), fixture.rank(3)), (Some(199), None));
    assert_eq!(fixture.first_listening(0, |number| number >= 100), Some(101));
    assert_eq!((fixture.rank(100), fixture.rank(299), fixture.rank(1)), (Some(0), Some(133), None));
    fixture.beat(1, 0, false);
    assert_eq!((fixture.rank(1), fixture.rank(299)), (Some(0), Some(134)));
}

#[test]
fn a_place_that_a_renewal_put_back_has_its_label_from_the_next_ask() {
    let mut fixture = Fixture::of(1);
    fixture.line.lose();
    let owner = owner(0);
    let mut place = Place::new(&fixture.lock, &owner, RequestId::new(0));
    (place.ticket, place.ttl) = (1, Duration::from_secs(5));
    let renewal = Heartbeat { place: &place, lease: Duration::from_secs(30), label: None, call: 2 };
    let label = |line: &Line| line.inspect(Duration::ZERO, 0..1)[0].label.clone();
    fixture.line.restore(renewal, Duration::ZERO);
    assert_eq!(label(&fixture.line), None);
    assert!(fixture.line.refresh(Heartbeat { label: Some("worker 3"), call: 3, ..renewal }, Duration::ZERO));
    assert_eq!(label(&fixture.line).as_deref(), Some("worker 3"));
    assert!(fixture.line.refresh(Heartbeat { call: 4, ..renewal }, Duration::ZERO));
    assert_eq!(label(&fixture.line).as_deref(), Some("worker 3"), "a renewal keeps it");
}

#[test]
fn the_clock_of_a_line_starts_when_the_first_waiter_joins() {
    let mut fixture = Fixture::of(0);
    fixture.beat(0, 100, true);
    assert_eq!(fixture.left(0, 102), Some(Duration::from_secs(3)));
    fixture.beat(0, 102, false);
    assert_eq!(fixture.left(0, 103), Some(Duration::from_secs(4)));
}

#[test]
fn a_pause_longer_than_a_place_lives_makes_no_waiter_overdue() {
    let mut fixture = Fixture::of(2);
    fixture.beat(1, 60, false);
    assert_eq!(fixture.first_at(60), Some(1));
    assert_eq!(fixture.line.over_at(), Duration::from_secs(180));
}

#[test]
fn a_pause_makes_no_waiter_overdue_even_if_places_have_different_times_to_live() {
    let mut fixture = Fixture::of(1);
    fixture.beat_with(1, 0, true, 60);
    fixture.beat_with(1, 30, false, 60);
    assert_eq!(fixture.first_at(30), Some(1), "the clock moved by half of the shorter time");
}

#[test]
fn the_least_time_to_live_is_forgotten_after_the_waiter_that_had_it() {
    let mut fixture = Fixture::of(1);
    fixture.beat_with(1, 0, true, 60);
    fixture.line.remove(&owner(0), RequestId::new(0));
    for at in [20, 40, 60] {
        fixture.beat_with(1, at, false, 60);
    }
    // Its clock followed all 20 s steps; with the shorter time to live it would have moved by 2.5 s each.
    fixture.beat_with(2, 60, true, 60);
    assert_eq!(fixture.left(0, 79), Some(Duration::from_secs(41)));
}

#[test]
fn each_part_of_the_line_is_what_the_whole_has_there() {
    let mut fixture = Fixture::of(300);
    for number in (0..300).step_by(7) {
        fixture.line.remove(&owner(number), RequestId::new(number));
    }
    fixture.first_listening(0, |number| number >= 100);
    let owners = |part: Range<u64>| -> Vec<String> {
        let line = fixture.line.inspect(Duration::ZERO, part);
        line.iter().map(|waiter| waiter.owner.to_string()).collect()
    };
    let whole = owners(0..u64::MAX);
    assert_eq!((whole.len() as u64, fixture.line.length()), (257, 257));
    assert_eq!((whole[0].as_str(), whole[256].as_str()), ("c:100", "c:99"));
    for start in 0..260_u64 {
        let (from, to) = (257.min(start as usize), 257.min(start as usize + 30));
        assert_eq!(owners(start..start + 30), whole[from..to], "from {start}");
    }
    assert!(owners(3..3).is_empty() && owners(u64::MAX..u64::MAX).is_empty());
}

#[test]
fn a_shorter_time_to_live_counts_at_once() {
    let mut fixture = Fixture::of(0);
    fixture.beat_with(0, 0, true, 60);
    fixture.beat_with(1, 0, true, 5);
    fixture.beat_with(0, 30, false, 60);
    assert_eq!(fixture.left(1, 30), Some(Duration::from_millis(2500)), "the clock moved by half of it");
}

/// By the line's own clock, which stands still while no waiter is heard, none of them would ever be absent.
#[test]
fn all_waiters_are_absent_when_none_was_heard_for_a_minute() {
    let fixture = Fixture::of(3);
    let absent = |at: u64, most| fixture.line.absent(Duration::from_secs(at), most);
    assert_eq!([absent(4, 3), absent(5, 1), absent(5, 3), absent(60, 1)], [0, 1, 3, 1]);
    assert_eq!([absent(61, 1), absent(100, 1)], [3, 3]);
    assert_eq!(absent(100, 0), 0, "none was looked at");
}

#[test]
fn a_call_looks_once_for_silent_places_and_at_a_few_of_them() {
    let mut fixture = Fixture::of(6);
    fixture.first_listening(0, |number| number == 5);
    fixture.beat_from_to(5, 2, 64);
    fixture.line.pulse(Duration::from_secs(66));
    let left = [1000, 1000, 1001].map(|call| {
        fixture.line.sweep(call);
        fixture.line.length()
    });
    assert_eq!(left, [3, 3, 1]);
}

#[test]
fn a_time_in_which_nobody_could_be_heard_makes_nobody_absent() {
    let mut fixture = Fixture::of(2);
    for start in [0, 10, 20] {
        let (since, now) = (Duration::from_secs(start + 1), Duration::from_secs(start + 10));
        fixture.line.skip(since, now); // a second of it counts
        fixture.line.pulse(now);
        assert_eq!(fixture.left(0, start + 10), Some(Duration::from_secs(4 - start / 10)));
    }
    fixture.line.skip(Duration::from_secs(29), Duration::from_secs(30)); // before the last heartbeat
    assert_eq!((fixture.first_at(31), fixture.first_at(32)), (Some(1), None));
}
