//! Semaphores and read-write locks: holds that end, waiters that are absent, and who looks when.

use std::time::Duration;

use fairlock_core::backend::{
    Acquired, Backend, ForceReleased, HoldCountSet, Released, Renewal, Wait, Withdrawn,
};

use crate::support::{Asker, Fixture, LEASE, TTL};

const WRITE: u32 = u32::MAX;
const SECOND: Duration = Duration::from_secs(1);
const PAST_THE_END: Duration = Duration::from_millis(1);

/// How long a waiter that asks now is told to wait before it looks.
fn looks_in(asker: &Asker<'_>) -> Duration {
    match asker.acquire(Wait::Forever).unwrap() {
        Acquired::Queued { recheck_in, .. } => recheck_in,
        other => panic!("{other:?}"),
    }
}

fn is_busy(asker: &Asker<'_>) {
    assert!(matches!(asker.acquire(Wait::No), Ok(Acquired::Busy { .. })));
}

#[test]
fn each_hold_has_an_end_of_its_own() {
    let fixture = Fixture::semaphore(3);
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let first = a.gets_it();
    fixture.clock.advance(10 * SECOND);
    let second = b.gets_it();
    assert_eq!(b.renew_hold(second, 1).unwrap(), Renewal::Renewed);
    fixture.clock.advance(LEASE - 10 * SECOND);
    assert_eq!(fixture.holders(), (vec![b.owner.clone()], 1), "the renewal raised one end only");
    assert_eq!(a.renew_hold(first, 1).unwrap(), Renewal::Lost, "what is over is not renewed");
    assert_eq!(a.release(first).unwrap(), Released::NotHeld);
    c.gets_it();
    assert_eq!(fixture.holders(), (vec![b.owner, c.owner], 2));
}

#[test]
fn each_call_but_a_holders_own_that_finds_a_hold_over_hands_its_units_on() {
    let looks: [fn(&Fixture, &Asker<'_>, &Asker<'_>); 7] = [
        |_, _, stranger| stranger.queues(0),
        |_, _, stranger| is_busy(stranger),
        |_, _, stranger| assert_eq!(stranger.withdraw(), Withdrawn::Left),
        |_, _, stranger| assert_eq!(stranger.renew_place().unwrap(), Renewal::Lost),
        |fixture, alive, _| {
            let token = fixture.inspect().holders[0].token.unwrap();
            let set = fixture.backend.set_hold_count(&alive.hold(token), 2).unwrap();
            assert_eq!(set, HoldCountSet::Set);
        },
        |fixture, _, stranger| {
            let token = fixture.inspect().holders[0].token.unwrap();
            assert_eq!(stranger.release(token).unwrap(), Released::NotHeld);
        },
        |fixture, _, stranger| {
            let token = fixture.inspect().holders[0].token.unwrap();
            assert_eq!(fixture.backend.take_hold(&stranger.hold(token)).unwrap(), ForceReleased::NotHeld);
        },
    ];
    for (number, look) in looks.into_iter().enumerate() {
        let fixture = Fixture::semaphore(3);
        let (client, other) = (fixture.client(), fixture.client());
        let [dead, alive, stranger] = fixture.requests(&client);
        dead.taking(2).gets_it();
        fixture.clock.advance(LEASE / 2);
        alive.gets_it();
        let waiter = fixture.request(&other, 7).taking(2);
        waiter.queues(0);
        fixture.advance_with(LEASE / 2 - SECOND, &[&waiter]);
        assert_eq!(fixture.holders().1, 3);
        fixture.clock.advance(SECOND);
        look(&fixture, &alive, &stranger);
        waiter.told_by(&other);
        assert_eq!(fixture.holders(), (vec![alive.owner, waiter.owner], 3), "look {number}");
    }
}

/// Not when enough of them would be over: a live holder may release before that, and then the dead one's end counts.
#[test]
fn the_first_in_line_and_the_first_of_each_client_look_at_the_earliest_end() {
    let fixture = Fixture::read_write();
    let (client, other) = (fixture.client(), fixture.client());
    let [a, b] = fixture.requests(&client);
    let (first, next) = (fixture.request(&client, 2).taking(WRITE), fixture.request(&client, 3));
    let theirs = fixture.request(&other, 4);
    a.gets_it();
    fixture.clock.advance(10 * SECOND);
    let token = b.gets_it();
    assert_eq!(looks_in(&first), LEASE - 10 * SECOND + PAST_THE_END);
    assert_eq!(looks_in(&theirs), Duration::MAX, "its next heartbeat is earlier");
    fixture.advance_with(19 * SECOND, &[&first, &theirs]);
    assert_eq!(looks_in(&first), SECOND + PAST_THE_END);
    assert_eq!(looks_in(&theirs), SECOND + PAST_THE_END);
    b.release(token).unwrap();
    assert_eq!(looks_in(&first), SECOND + PAST_THE_END);
    fixture.clock.advance(SECOND);
    first.gets_it();
    next.queues(1);
}

#[test]
fn a_dead_reader_delays_a_writer_by_its_lease_and_no_longer() {
    let fixture = Fixture::read_write();
    let client = fixture.client();
    let [a, b, writer] = fixture.requests(&client);
    let writer = writer.taking(WRITE);
    a.gets_it();
    let token = b.gets_it();
    writer.queues(0);
    b.release(token).unwrap();
    fixture.advance_with(LEASE - PAST_THE_END, &[&writer]);
    assert_eq!(looks_in(&writer), Duration::from_millis(50), "it does not look more often");
    fixture.clock.advance(PAST_THE_END);
    writer.gets_it();
}

#[test]
fn a_blocking_first_waiter_that_is_silent_is_passed_over_by_a_heartbeat_of_another() {
    let fixture = Fixture::read_write();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let (a, writer) = (a, b.taking(WRITE));
    a.gets_it();
    writer.queues(0);
    c.queues(1);
    fixture.advance_with(TTL - PAST_THE_END, &[&c]);
    assert_eq!(fixture.holders().1, 1);
    fixture.clock.advance(PAST_THE_END);
    let Renewal::Granted { lease: TTL, .. } = c.renew_place().unwrap() else { panic!("not granted") };
    assert_eq!(fixture.holders(), (vec![a.owner, c.owner], 2));
}

/// While it fits, a waiter without a subscription is passed over at once. One that does not fit would lose its turn to any
/// number of small requests while its client connects anew.
#[test]
fn a_blocking_first_waiter_whose_client_hung_up_is_passed_over_after_half_a_place() {
    let fixture = Fixture::semaphore(3);
    let (client, mut dead) = (fixture.client(), fixture.client());
    let [a, b, c] = fixture.requests(&client);
    let large = fixture.request(&dead, 7).taking(3);
    a.gets_it();
    large.queues(0);
    b.queues(1);
    dead.hangs_up();
    is_busy(&c);
    fixture.advance_with(TTL / 2 - PAST_THE_END, &[&b]);
    is_busy(&c);
    fixture.clock.advance(PAST_THE_END);
    assert!(matches!(c.acquire(Wait::No), Ok(Acquired::Granted { .. })), "behind the waiter");
    b.told_by(&client);
    assert_eq!(fixture.holders(), (vec![a.owner, b.owner, c.owner], 3));
}

#[test]
fn a_waiter_that_fits_and_whose_client_hung_up_is_passed_over_at_once() {
    let fixture = Fixture::semaphore(2);
    let (client, mut dead) = (fixture.client(), fixture.client());
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.gets_it();
    fixture.request(&dead, 7).queues(0);
    c.queues(1);
    dead.hangs_up();
    a.release(token).unwrap();
    assert_eq!(fixture.holders(), (vec![b.owner, c.owner], 2));
}

#[test]
fn a_blocking_waiter_that_comes_back_stands_at_its_ticket_and_those_that_entered_stay() {
    let fixture = Fixture::semaphore(3);
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let (large, d) = (b.taking(3), d.taking(2));
    let token = a.gets_it();
    large.queues(0);
    c.queues(1);
    d.queues(2);
    fixture.advance_with(TTL, &[&c, &d]);
    assert_eq!(fixture.holders(), (vec![a.owner.clone(), c.owner.clone()], 2));
    assert!(matches!(large.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    a.release(token).unwrap();
    assert_eq!(fixture.holders(), (vec![c.owner.clone()], 1), "two are free, and the first wants three");
    assert_eq!(fixture.line(), [large.owner.clone(), d.owner.clone()]);
    c.release(c.gets_it()).unwrap();
    assert_eq!(fixture.holders(), (vec![large.owner], 3));
}

/// Only one of several pushed grants is lost.
#[test]
fn a_lost_grant_is_found_by_a_heartbeat_and_lasts_as_long_as_its_place() {
    let fixture = Fixture::semaphore(2);
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let a = a.taking(2);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.clock.advance(SECOND);
    fixture.faults().lose_wake_ups(1);
    a.release(token).unwrap();
    c.told_by(&client);
    let Renewal::Granted { token, lease } = b.renew_place().unwrap() else { panic!("not granted") };
    assert_eq!((lease, b.gets_it()), (TTL - SECOND, token));
    assert_eq!(fixture.holders().1, 2);
}

#[test]
fn a_line_that_was_lost_beside_free_units_is_served_in_its_former_order() {
    let fixture = Fixture::semaphore(3);
    let (client, other) = (fixture.client(), fixture.client());
    let [a, mut b, mut c, d] = fixture.requests(&client);
    (b.takes, c.takes) = (3, 1);
    let a = a.taking(2);
    a.gets_it();
    b.queues_and_knows(0);
    c.queues_and_knows(1);
    fixture.faults().lose_line("orders");
    let Renewal::Waiting { rank: 0, recheck_in, .. } = c.renew_place().unwrap() else { panic!() };
    assert_eq!(recheck_in, TTL, "the waiters ahead have so long to come back");
    is_busy(&d);
    b.queues(0);
    fixture.advance_with(TTL, &[&b, &c]);
    assert_eq!(fixture.holders(), (vec![a.owner], 2));
    let newcomer = fixture.request(&other, 9);
    newcomer.queues(2);
    assert_eq!(fixture.line(), [b.owner, c.owner, newcomer.owner]);
}

#[test]
fn a_newcomer_that_does_not_fit_removes_a_waiter_that_has_been_silent_for_too_long() {
    let fixture = Fixture::semaphore(2);
    let (client, mut other) = (fixture.client(), fixture.client());
    let [a, stranger, newcomer] = fixture.requests(&client);
    let (stranger, newcomer) = (stranger.taking(2), newcomer.taking(2));
    let token = a.gets_it();
    fixture.request(&other, 9).taking(2).queues(0);
    other.hangs_up();
    for _ in 0..35 {
        fixture.clock.advance(2 * SECOND);
        a.renew_hold(token, 1).unwrap();
        is_busy(&stranger);
    }
    assert_eq!(fixture.inspect().line_length, 1, "a question without wait removes none");
    newcomer.queues(0);
    assert_eq!(fixture.line(), [newcomer.owner]);
}
