//! A waiter knows its ticket, so what a store forgets costs it no turn. These cases call the backend itself.

use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{Acquire, Acquired, Place, Released, Renew, Renewal, Wait, Withdrawn, only};

use super::{DEAD, Harness, LEASE, Promise, SLACK};
use crate::requests::Bench;

/// Waiters of one client, which know their tickets.
struct Waiters<'a> {
    bench: &'a Bench,
    all: Vec<(OwnerId, u64)>,
}

impl<'a> Waiters<'a> {
    /// Has `n` waiters stand in the queue.
    fn new(bench: &'a Bench, n: u64) -> Waiters<'a> {
        let mut waiters = Waiters { bench, all: (0..n).map(|_| (bench.owner(), 0)).collect() };
        for number in 0..n as usize {
            let (rank, ticket) = waiters.queues(number);
            assert_eq!(rank, number as u64);
            waiters.all[number].1 = ticket;
        }
        waiters
    }

    fn place(&self, number: usize) -> Place<'_> {
        let (owner, ticket) = &self.all[number];
        let mut place = self.bench.place(owner, 100 + number as u64);
        // Only the first one is ever left alone.
        let ttl = if number == 0 { DEAD } else { LEASE };
        (place.wait, place.ttl, place.ticket) = (Wait::Forever, ttl, *ticket);
        place
    }

    fn asks(&self, number: usize) -> Acquired {
        only(self.bench.backend.acquire(&[Acquire::new(self.place(number), LEASE)])).unwrap()
    }

    /// Asks, and returns rank and ticket.
    fn queues(&self, number: usize) -> (u64, u64) {
        match self.asks(number) {
            Acquired::Queued { rank, ticket, latest, .. } => {
                assert!(0 < ticket && ticket <= latest, "{ticket} of {latest}");
                (rank, ticket)
            }
            other => panic!("{other:?}"),
        }
    }

    fn renews(&self, number: usize) -> Renewal {
        let item = Renew::Place { place: self.place(number), lease: LEASE };
        self.bench.backend.renew(self.bench.client, &[item]).remove(0).unwrap()
    }

    /// Removes the place, in the one way that every store has.
    fn loses_its_place(&self, number: usize) {
        assert_eq!(only(self.bench.backend.withdraw(&[self.place(number)])).unwrap(), Withdrawn::Left);
    }

    fn all_leave(self) {
        (0..self.all.len())
            .for_each(|number| _ = only(self.bench.backend.withdraw(&[self.place(number)])).unwrap());
    }
}

/// Wherever it stood and whichever waiter asks first; a new request stands behind.
pub fn a_place_that_is_gone_is_put_back_at_its_ticket(harness: &impl Harness) {
    if !harness.promises(Promise::HandOff) {
        return;
    }
    let bench = Bench::new(harness, "back");
    let holder = bench.owner();
    let token = bench.token(&holder, 1);
    let waiters = Waiters::new(&bench, 4);
    (0..3).for_each(|number| waiters.loses_its_place(number));
    let newcomer = bench.owner();
    assert!(matches!(bench.ask(&newcomer, 2), Acquired::Queued { rank: 1, .. }));
    for (number, rank) in [(2, 0), (0, 0), (1, 1), (2, 2), (3, 3)] {
        // A heartbeat may put the place back, or leave that to an ask.
        assert!(matches!(waiters.renews(number), Renewal::Waiting { .. } | Renewal::Lost));
        assert_eq!(waiters.queues(number), (rank, waiters.all[number].1), "waiter {number}");
    }
    assert!(matches!(bench.ask(&newcomer, 2), Acquired::Queued { rank: 4, .. }));
    waiters.all_leave();
    assert_eq!(only(bench.backend.withdraw(&[bench.place(&newcomer, 2)])).unwrap(), Withdrawn::Left);
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    harness.assert_nothing_is_left("back");
}

/// No queue was lost: the waiter's ticket has had its turn.
pub fn a_waiter_that_comes_back_to_a_free_lock_has_it_at_once(harness: &impl Harness) {
    let bench = Bench::new(harness, "alone");
    let holder = bench.owner();
    let token = bench.token(&holder, 1);
    let waiters = Waiters::new(&bench, 1);
    waiters.queues(0);
    assert_eq!(bench.release(&holder, 1, token), Released::Released); // the grant ends before the waiter hears of it
    harness.pass(DEAD + SLACK);
    let mut answer = waiters.asks(0);
    if let Acquired::Queued { recheck_in, .. } = answer {
        assert_eq!(recheck_in, Duration::ZERO);
        answer = waiters.asks(0);
    }
    let Acquired::Granted { token, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(bench.release(&waiters.all[0].0, 100, token), Released::Released);
    harness.assert_nothing_is_left("alone");
}

/// Otherwise a forged ticket would stand ahead of other waiters, or a new request ahead of it.
pub fn a_ticket_that_the_lock_has_not_given_out_is_not_believed(harness: &impl Harness) {
    if !harness.promises(Promise::HandOff) {
        return;
    }
    let bench = Bench::new(harness, "forged");
    let holder = bench.owner();
    let token = bench.token(&holder, 1);
    let mut waiters = Waiters::new(&bench, 2);
    let ahead = 60 * 60 * 1_000_000; // an hour in microseconds, in case the store takes tickets from its clock
    for forged in [u64::MAX, waiters.all[1].1 + ahead] {
        waiters.loses_its_place(0);
        waiters.all[0].1 = forged;
        assert_eq!(waiters.renews(0), Renewal::Lost);
        let (rank, ticket) = waiters.queues(0);
        assert!(rank == 1 && waiters.all[1].1 < ticket && ticket < forged, "{ticket}");
        let newcomer = bench.owner();
        assert!(matches!(bench.ask(&newcomer, 2), Acquired::Queued { rank: 2, .. }));
        assert_eq!(only(bench.backend.withdraw(&[bench.place(&newcomer, 2)])).unwrap(), Withdrawn::Left);
    }
    waiters.all_leave();
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    harness.assert_nothing_is_left("forged");
}

/// Its process stood still when its turn came.
pub fn a_waiter_whose_grant_is_over_is_next(harness: &impl Harness) {
    if !harness.promises(Promise::HandOff) {
        return;
    }
    let bench = Bench::new(harness, "lapsed");
    let holder = bench.owner();
    let token = bench.token(&holder, 1);
    let waiters = Waiters::new(&bench, 3);
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    harness.pass(DEAD + SLACK);
    // The first waiter did not take the lock in time: the second waiter gets it by its next ask.
    let Acquired::Granted { token, .. } = waiters.asks(1) else { panic!("{:?}", waiters.asks(1)) };
    assert_eq!(waiters.queues(2).0, 0);
    assert_eq!(waiters.renews(0), Renewal::Lost);
    assert_eq!(waiters.queues(0), (0, waiters.all[0].1));
    assert_eq!(waiters.queues(2).0, 1);
    let (second, _) = &waiters.all[1];
    assert_eq!(bench.release(second, 101, token), Released::Released);
    let Acquired::Granted { token, .. } = waiters.asks(0) else { panic!("{:?}", waiters.asks(0)) };
    let (first, _) = &waiters.all[0];
    assert_eq!(waiters.queues(2).0, 0);
    assert_eq!(only(bench.backend.withdraw(&[waiters.place(2)])).unwrap(), Withdrawn::Left);
    assert_eq!(bench.release(first, 100, token), Released::Released);
    harness.assert_nothing_is_left("lapsed");
}

/// The heartbeat was sent while the place was there, and took long.
pub fn a_heartbeat_after_the_release_of_its_hold_leaves_nothing(harness: &impl Harness) {
    if !harness.promises(Promise::HandOff) {
        return;
    }
    let bench = Bench::new(harness, "late");
    let holder = bench.owner();
    let token = bench.token(&holder, 1);
    let waiters = Waiters::new(&bench, 1);
    assert_eq!(bench.release(&holder, 1, token), Released::Released);
    let Acquired::Granted { token, .. } = waiters.asks(0) else { panic!("{:?}", waiters.asks(0)) };
    assert_eq!(bench.release(&waiters.all[0].0, 100, token), Released::Released);
    assert_eq!(waiters.renews(0), Renewal::Lost);
    assert_eq!(bench.queue(), 0);
    harness.assert_nothing_is_left("late");
}
