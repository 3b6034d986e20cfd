//! The queue on a clock of seconds: ranks, who is absent, and its own clock; and who is told that a plain lock is free.

use super::*;
use fairlock_core::backend::LockId;
use fairlock_core::{LockKind, LockName};

/// A queue of `c:0`, `c:1`, ... with a time to live of 5 s, on a clock of seconds. The ticket of `c:0` is 1, that of `c:1` is 2, ...
struct Fixture {
    lock: LockId,
    queue: Queue,
}

impl Fixture {
    fn of(waiters: u64) -> Fixture {
        let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Fair);
        let mut fixture = Fixture { lock, queue: Queue::default() };
        (0..waiters).for_each(|number| fixture.joins(number, 0, 5));
        fixture
    }

    fn place<'a>(&'a self, owner: &'a OwnerId, number: u64, ttl: u64) -> Place<'a> {
        let mut place = Place::new(&self.lock, owner, RequestId::new(number));
        (place.ttl, place.ticket) = (Duration::from_secs(ttl), number + 1);
        place
    }

    fn joins(&mut self, number: u64, at: u64, ttl: u64) {
        let (owner, now) = (owner(number), Duration::from_secs(at));
        self.queue.pulse(now, 0);
        self.queue.count_ttl(Duration::from_secs(ttl));
        let place = self.place(&owner, number, ttl);
        let heartbeat = Heartbeat { place: &place, lease: Duration::from_secs(30), label: None, call: 1 };
        let place = self.queue.new_place(heartbeat, "label".into(), now);
        self.queue.insert(number + 1, place);
    }

    fn is_heard_with(&mut self, number: u64, at: u64, ttl: u64, label: Option<&str>) {
        let owner = owner(number);
        let lock = self.lock.clone();
        let mut place = Place::new(&lock, &owner, RequestId::new(number));
        (place.ttl, place.ticket) = (Duration::from_secs(ttl), number + 1);
        self.queue.pulse(Duration::from_secs(at), 0);
        self.queue.hear(Heartbeat { place: &place, lease: Duration::from_secs(30), label, call: 2 });
    }

    fn is_heard(&mut self, number: u64, at: u64) {
        self.is_heard_with(number, at, 5, None);
    }

    fn first_at(&self, at: u64) -> Option<u64> {
        let is_present =
            |(_, place): &(u64, &QueuedPlace)| !self.queue.is_overdue(place, Duration::from_secs(at));
        self.queue.places().find(is_present).map(|(ticket, _)| ticket)
    }

    /// What is left of the time of the waiter with this rank.
    fn left(&self, rank: u64, at: u64) -> Option<Duration> {
        self.queue.inspect(Duration::from_secs(at), rank..rank + 1)[0].place_left
    }
}

fn owner(number: u64) -> OwnerId {
    OwnerId::new(&format!("c:{number}"))
}

#[test]
fn ranks_are_right_after_waiters_left_and_came_back() {
    let mut fixture = Fixture::of(300);
    assert_eq!(fixture.queue.rank_of(300), 299);
    for number in (0..300).step_by(3) {
        fixture.queue.remove(number + 1);
    }
    assert_eq!(
        (fixture.queue.rank_of(300), fixture.queue.ticket_of(&owner(3), RequestId::new(3), 4)),
        (199, None)
    );
    fixture.joins(3, 0, 5);
    assert_eq!((fixture.queue.rank_of(4), fixture.queue.rank_of(300)), (2, 200));
}

#[test]
fn a_heartbeat_keeps_the_label_and_an_ask_renews_it() {
    let mut fixture = Fixture::of(1);
    let label = |queue: &Queue| queue.inspect(Duration::ZERO, 0..1)[0].label.clone();
    fixture.is_heard_with(0, 0, 5, None);
    assert_eq!(label(&fixture.queue).as_deref(), Some("label"));
    fixture.is_heard_with(0, 0, 5, Some("worker 3"));
    assert_eq!(label(&fixture.queue).as_deref(), Some("worker 3"));
}

/// Else a store would write the row of a lock that nobody waits for, to excuse a silence of nobody.
#[test]
fn a_queue_is_silent_only_while_somebody_waits() {
    let day = Duration::from_secs(86_400);
    assert_eq!(Queue::default().silent_for(day), Duration::ZERO);
    assert!(Fixture::of(1).queue.silent_for(day) > Duration::ZERO);
}

#[test]
fn a_place_is_heard_once_its_ticket_was_named() {
    let mut fixture = Fixture::of(1);
    let stays = |fixture: &mut Fixture, at: u64| {
        fixture.queue.pulse(Duration::from_secs(at), 0);
        let (_, place) = fixture.queue.places().next().unwrap();
        fixture.queue.stays_unheard(place)
    };
    // Its time ends at 5 s, and the clock moves by half of it each time.
    assert_eq!([2, 4, 6, 8, 9, 10].map(|at| stays(&mut fixture, at)), [true, true, true, true, true, false]);
    let owner = owner(0);
    let lock = fixture.lock.clone();
    for (named, stays_unheard) in [(0, true), (7, true), (1, false), (0, false)] {
        let mut place = Place::new(&lock, &owner, RequestId::new(0));
        place.ticket = named;
        fixture.queue.hear(Heartbeat { place: &place, lease: Duration::ZERO, label: None, call: 3 });
        assert_eq!(stays(&mut fixture, 10), stays_unheard, "{named}");
    }
}

#[test]
fn the_clock_of_a_queue_starts_when_the_first_waiter_joins() {
    let mut fixture = Fixture::of(0);
    fixture.joins(0, 100, 5);
    assert_eq!(fixture.left(0, 102), Some(Duration::from_secs(3)));
    fixture.is_heard(0, 102);
    assert_eq!(fixture.left(0, 103), Some(Duration::from_secs(4)));
}

#[test]
fn a_pause_longer_than_a_place_lives_makes_no_waiter_overdue() {
    let mut fixture = Fixture::of(2);
    fixture.is_heard(1, 60);
    assert_eq!(fixture.first_at(60), Some(1));
    assert_eq!(fixture.queue.over_at(), Duration::from_secs(180));
}

#[test]
fn a_pause_makes_no_waiter_overdue_whatever_the_times_to_live() {
    let mut fixture = Fixture::of(1);
    fixture.joins(1, 0, 60);
    fixture.is_heard_with(1, 30, 60, None);
    assert_eq!(fixture.first_at(30), Some(1), "the clock moved by half of the shorter time");
}

/// Else a short wait would slow the clock for as long as anybody waits.
#[test]
fn the_least_time_to_live_grows_while_it_is_silent() {
    let mut fixture = Fixture::of(0);
    fixture.joins(0, 0, 8);
    fixture.joins(1, 0, 60);
    fixture.queue.remove(1);
    let mut moved = |second| {
        let before = fixture.queue.clock();
        fixture.is_heard_with(1, second, 60, None);
        fixture.queue.clock() - before
    };
    let all: Vec<_> = [20, 40, 60, 80, 100].map(&mut moved).map(|by| by.as_secs()).to_vec();
    assert_eq!(
        all,
        [4, 20, 20, 20, 20],
        "half of the TTL of the waiter that left, and then as the store's clock"
    );
    // A new waiter with a short TTL counts at once.
    fixture.joins(0, 100, 5);
    fixture.is_heard_with(1, 110, 60, None);
    assert_eq!(fixture.left(0, 110), Some(Duration::from_millis(2500)));
}

/// The waiter with the short TTL leaves, and the waiter with the long TTL is heard first. The waiter with the middle TTL keeps its turn.
#[test]
fn a_pause_after_a_short_wait_makes_no_waiter_overdue() {
    let mut fixture = Fixture::of(0);
    fixture.joins(0, 0, 2);
    fixture.joins(1, 0, 12);
    fixture.joins(2, 0, 60);
    fixture.queue.remove(1);
    fixture.is_heard_with(2, 2, 60, None);
    fixture.is_heard_with(2, 42, 60, None);
    assert_eq!(fixture.first_at(42), Some(2));
}

#[test]
fn the_least_time_to_live_is_kept_while_the_clock_follows() {
    let mut fixture = Fixture::of(0);
    fixture.joins(0, 0, 4);
    fixture.joins(1, 0, 60);
    for (second, clock) in [(2, 2), (12, 4)] {
        fixture.is_heard_with(1, second, 60, None);
        assert_eq!(fixture.queue.clock(), Duration::from_secs(clock), "at {second} s");
    }
}

#[test]
fn the_least_time_to_live_is_forgotten_when_the_queue_was_empty() {
    let mut fixture = Fixture::of(1);
    fixture.queue.remove(1);
    fixture.joins(1, 0, 60);
    fixture.is_heard_with(1, 20, 60, None);
    assert_eq!(fixture.queue.clock(), Duration::from_secs(20));
}

#[test]
fn each_part_of_the_queue_is_what_the_whole_has_there() {
    let mut fixture = Fixture::of(300);
    for number in (0..300).step_by(7) {
        fixture.queue.remove(number + 1);
    }
    let owners = |part: Range<u64>| -> Vec<String> {
        let queue = fixture.queue.inspect(Duration::ZERO, part);
        queue.iter().map(|waiter| waiter.owner.to_string()).collect()
    };
    let whole = owners(0..u64::MAX);
    assert_eq!((whole.len() as u64, fixture.queue.length()), (257, 257));
    assert_eq!((whole[0].as_str(), whole[256].as_str()), ("c:1", "c:299"));
    for start in 0..260_u64 {
        let (from, to) = (257.min(start as usize), 257.min(start as usize + 30));
        assert_eq!(owners(start..start + 30), whole[from..to], "from {start}");
    }
    assert!(owners(3..3).is_empty() && owners(u64::MAX..u64::MAX).is_empty());
}

#[test]
fn a_shorter_time_to_live_counts_at_once() {
    let mut fixture = Fixture::of(0);
    fixture.joins(0, 0, 60);
    fixture.joins(1, 0, 5);
    fixture.is_heard_with(0, 30, 60, None);
    assert_eq!(fixture.left(1, 30), Some(Duration::from_millis(2500)), "the clock moved by half of it");
}

/// By the queue's own clock, which stands still while no waiter is heard, none of them would ever be absent.
#[test]
fn all_waiters_are_absent_when_none_was_heard_for_a_minute() {
    let fixture = Fixture::of(3);
    let absent = |at: u64, most| fixture.queue.absent(Duration::from_secs(at), most, |_| false);
    assert_eq!([absent(4, 3), absent(5, 1), absent(5, 3), absent(60, 1)], [0, 1, 3, 1]);
    assert_eq!([absent(61, 1), absent(100, 1)], [3, 3]);
    assert_eq!(absent(100, 0), 0, "none was looked at");
}

#[test]
fn a_time_in_which_nobody_could_be_heard_makes_nobody_absent() {
    let mut fixture = Fixture::of(2);
    for start in [0, 10, 20] {
        let (since, now) = (Duration::from_secs(start + 1), Duration::from_secs(start + 10));
        fixture.queue.skip(since, now); // a second of it counts
        fixture.queue.pulse(now, 0);
        assert_eq!(fixture.left(0, start + 10), Some(Duration::from_secs(4 - start / 10)));
    }
    fixture.queue.skip(Duration::from_secs(29), Duration::from_secs(30)); // before the last heartbeat
    assert_eq!((fixture.first_at(31), fixture.first_at(32)), (Some(1), None));
}

#[test]
fn a_rest_begins_with_a_lost_ticket_and_ends_with_all() {
    let mut fixture = Fixture::of(3);
    let (zero, ttl) = (Duration::ZERO, Duration::from_secs(5));
    fixture.queue.serve(2);
    fixture.queue.rest_if_lost(2, ttl, 9);
    assert_eq!(fixture.queue.rests_for(zero), zero, "it had its turn");
    fixture.queue.rest_if_lost(3, ttl, 9);
    fixture.queue.pulse(Duration::from_secs(2), 0);
    fixture.queue.rest_if_lost(10, ttl, 11);
    assert_eq!(fixture.queue.rests_for(Duration::from_secs(2)), Duration::from_secs(3), "it goes on");
    (1..=3).for_each(|ticket| fixture.queue.remove(ticket));
    assert_eq!(fixture.queue.rests_for(Duration::from_secs(2)), zero);
    fixture.joins(7, 2, 5);
    assert_eq!(fixture.queue.rests_for(Duration::from_secs(2)), zero);
}

/// Else it would rest for each that comes back after the first rest.
#[test]
fn a_queue_that_was_lost_once_rests_once() {
    let mut fixture = Fixture::of(3);
    let (ttl, at_its_end) = (Duration::from_secs(5), Duration::from_secs(10));
    fixture.queue.rest_if_lost(2, ttl, 9);
    [2, 4, 6, 8, 10].into_iter().for_each(|second| fixture.queue.pulse(Duration::from_secs(second), 0));
    fixture.queue.rest_if_lost(3, ttl, 10);
    assert_eq!(fixture.queue.rests_for(at_its_end), Duration::ZERO, "its ticket is of the lost queue");
    fixture.queue.rest_if_lost(10, ttl, 11);
    assert_eq!(fixture.queue.rests_for(at_its_end), ttl, "it was lost again");
}

/// Each client is told once, and a client that says nothing for a minute is told no more.
#[test]
fn each_client_is_told_once_unless_silent_for_a_minute() {
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Plain);
    let mut interest = Interest::default();
    let now = Duration::from_secs(1);
    for (number, owner) in ["a:1", "a:2", "b:1"].into_iter().enumerate() {
        let owner = OwnerId::new(owner);
        interest.refresh(&Place::new(&lock, &owner, RequestId::new(number as u64)), now);
    }
    assert_eq!(interest.one_of_each_client(now).len(), 2);
    let b = OwnerId::new("b:1");
    let later = now + Duration::from_secs(64);
    interest.refresh(&Place::new(&lock, &b, RequestId::new(2)), later);
    assert_eq!(interest.one_of_each_client(later).len(), 2);
    assert_eq!(interest.one_of_each_client(later + Duration::from_secs(1)), [b]);
}

#[test]
fn requests_are_abandoned_a_minute_after_the_last_one_was_over() {
    let lock = LockId::new(LockName::new("x").unwrap(), LockKind::Plain);
    let mut interest = Interest::default();
    for (number, heard) in [(1, 1), (2, 9)] {
        let owner = OwnerId::new("a:1");
        let place = Place::new(&lock, &owner, RequestId::new(number)); // for 5 s
        interest.refresh(&place, Duration::from_secs(heard));
    }
    assert_eq!(interest.over_at(), Duration::from_secs(74));
}
