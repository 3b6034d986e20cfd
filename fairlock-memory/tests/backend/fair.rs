//! Fair locks: order, no barging, and absent waiters.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fairlock_core::backend::{Acquired, Backend, ForceReleased, Released, Renew, Renewal, Wait, Withdrawn};

use crate::support::{Asker, Fixture, LEASE, TTL};

#[test]
fn waiters_get_the_lock_in_the_order_in_which_they_asked() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let mut token = a.gets_it();
    for (rank, waiter) in [&b, &c, &d].into_iter().enumerate() {
        waiter.queues(rank as u64);
    }
    let mut holder = &a;
    for next in [&b, &c, &d] {
        assert_eq!(holder.release(token).unwrap(), Released::Released);
        let pushed = next.told_by(&client);
        assert!(pushed > token);
        (holder, token) = (next, pushed);
    }
    assert_eq!(holder.release(token).unwrap(), Released::Released);
    assert!(client.heard().is_empty());
    assert!(fixture.holder().is_none());
}

#[test]
fn neither_a_newcomer_nor_an_attempt_without_wait_barges_past_the_line() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    a.gets_it();
    b.queues(0);
    fixture.faults().lose_hold("orders");
    assert!(matches!(c.acquire(Wait::No).unwrap(), Acquired::Busy { .. }));
    assert_eq!(fixture.holder(), Some(b.owner.clone()));
    fixture.faults().lose_hold("orders");
    c.gets_it();
    d.queues(0);
    fixture.faults().lose_hold("orders");
    a.queues(0);
    assert_eq!(fixture.holder(), Some(d.owner));
}

#[test]
fn an_attempt_without_wait_leaves_nothing_behind() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    assert_eq!(b.acquire(Wait::No).unwrap(), Acquired::Busy { recheck_in: LEASE });
    assert!(fixture.line().is_empty());
    b.queues(0);
    assert!(matches!(b.acquire(Wait::No).unwrap(), Acquired::Busy { .. }));
    assert!(fixture.line().is_empty());
    a.release(token).unwrap();
    assert!(matches!(b.acquire(Wait::No).unwrap(), Acquired::Granted { lease: LEASE, .. }));
}

#[test]
fn the_first_in_line_rechecks_when_the_hold_would_end_and_the_others_with_their_heartbeats() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    a.gets_it();
    fixture.clock.advance(Duration::from_secs(10));
    let recheck_in = Duration::from_millis(20_001);
    let queued = |waiter: &Asker<'_>| match waiter.acquire(Wait::Forever).unwrap() {
        Acquired::Queued { rank, recheck_in, .. } => (rank, recheck_in),
        other => panic!("{other:?}"),
    };
    assert_eq!(queued(&b), (0, recheck_in));
    assert_eq!(queued(&c), (1, Duration::MAX));
    let waiting = |waiter: &Asker<'_>| match waiter.renew_place().unwrap() {
        Renewal::Waiting { rank, recheck_in, .. } => (rank, recheck_in),
        other => panic!("{other:?}"),
    };
    assert_eq!(waiting(&b), (0, recheck_in));
    assert_eq!(waiting(&c), (1, Duration::MAX));
}

#[test]
fn the_next_call_of_any_client_hands_an_expired_hold_on() {
    let looks: [fn(&Fixture, &crate::support::Asker<'_>); 5] = [
        |_, stranger| stranger.queues(0),
        |_, stranger| assert!(matches!(stranger.acquire(Wait::No), Ok(Acquired::Busy { .. }))),
        |_, stranger| assert_eq!(stranger.withdraw(), Withdrawn::Left),
        |_, stranger| assert_eq!(stranger.renew_place().unwrap(), Renewal::Lost),
        |fixture, _| {
            let answer = fixture.backend.force_release(&fixture.lock).unwrap();
            assert_eq!(answer, ForceReleased::NotHeld);
        },
    ];
    for look in looks {
        let fixture = Fixture::fair();
        let client = fixture.client();
        let [a, b, stranger] = fixture.requests(&client);
        let token = a.gets_it();
        b.queues(0);
        fixture.advance_with(LEASE - Duration::from_secs(1), &[&b]);
        assert_eq!(fixture.holder(), Some(a.owner.clone()));
        fixture.clock.advance(Duration::from_secs(1));
        look(&fixture, &stranger);
        assert!(b.told_by(&client) > token);
        assert_eq!(fixture.holder(), Some(b.owner.clone()));
    }
}

#[test]
fn a_waiter_that_finds_the_lock_free_gets_it_by_the_answer_and_not_by_a_message() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.faults().lose_hold("orders");
    let Renewal::Granted { token, lease } = b.renew_place().unwrap() else { panic!("not granted") };
    assert_eq!(lease, TTL);
    assert!(client.heard().is_empty());
    b.release(token).unwrap();
    assert_eq!(c.gets_it(), c.told_by(&client));
}

#[test]
fn a_grant_is_valid_for_the_rest_of_the_place() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    fixture.clock.advance(Duration::from_secs(2));
    a.release(token).unwrap();
    let holder = fixture.inspect().holder().cloned().unwrap();
    assert_eq!((holder.owner, holder.lease_left), (b.owner.clone(), Some(Duration::from_secs(3))));
    assert_eq!(b.renew_hold(b.told_by(&client), 1).unwrap(), Renewal::Renewed);
    assert_eq!(fixture.inspect().holder().unwrap().lease_left, Some(LEASE));
}

#[test]
fn a_grant_is_never_longer_than_the_lease_that_was_requested_last() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    let lease = Duration::from_secs(1);
    let _ = fixture.backend.renew(client.id, &[Renew::Place { place: b.place(), lease }]);
    a.release(token).unwrap();
    assert_eq!(fixture.inspect().holder().unwrap().lease_left, Some(lease));
}

#[test]
fn a_waiter_whose_client_hung_up_is_passed_over_at_once() {
    let fixture = Fixture::fair();
    let (alive, mut dead) = (fixture.client(), fixture.client());
    let (a, c) = (fixture.request(&alive, 1), fixture.request(&alive, 2));
    let token = a.gets_it();
    for number in 10..20 {
        fixture.request(&dead, number).queues(number - 10);
    }
    c.queues(10);
    dead.hangs_up();
    a.release(token).unwrap();
    c.told_by(&alive);
    assert!(dead.heard().is_empty());
}

#[test]
fn an_overdue_waiter_is_passed_over_and_one_that_renews_is_not() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    fixture.advance_with(TTL, &[&c]);
    a.release(token).unwrap();
    c.told_by(&client);
}

#[test]
fn a_parked_place_comes_back_at_its_ticket_with_the_next_heartbeat() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    d.queues(2);
    fixture.advance_with(TTL, &[&c, &d]);
    a.release(token).unwrap();
    let token = c.told_by(&client);
    assert_eq!(fixture.line(), [d.owner.clone(), b.owner.clone()]);
    assert!(matches!(b.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    assert!(matches!(d.renew_place().unwrap(), Renewal::Waiting { rank: 1, .. }));
    c.release(token).unwrap();
    b.told_by(&client);
}

#[test]
fn a_place_that_stays_silent_for_a_minute_more_is_lost() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    d.queues(2);
    fixture.advance_with(TTL, &[&c, &d]);
    a.release(token).unwrap();
    let token = c.told_by(&client);
    for _ in 0..40 {
        fixture.advance_with(TTL / 3, &[&d]);
        c.renew_hold(token, 1).unwrap();
    }
    assert_eq!(fixture.line(), std::slice::from_ref(&d.owner));
    assert_eq!(b.renew_place().unwrap(), Renewal::Lost);
}

/// The line's clock moves by half of a place's time at most while no waiter is heard: its process may have stood still.
#[test]
fn calls_about_a_held_lock_make_no_waiter_overdue() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [holder, waiter] = fixture.requests(&client);
    let token = holder.gets_it();
    waiter.queues(0);
    for _ in 0..10 {
        fixture.clock.advance(Duration::from_secs(1));
        fixture.backend.set_hold_count(&holder.hold(token), 1).unwrap();
    }
    holder.release(token).unwrap();
    waiter.told_by(&client);
}

#[test]
fn a_waiter_in_line_has_silent_places_removed_and_a_newcomer_to_a_held_lock_has_no_time_for_that() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [holder, silent, next, asks, newcomer] = fixture.requests(&client);
    let token = holder.gets_it();
    [&silent, &next].iter().enumerate().for_each(|(rank, waiter)| waiter.queues(rank as u64));
    fixture.advance_with(TTL, &[&next]);
    holder.release(token).unwrap(); // passes the silent one over
    let token = next.told_by(&client);
    asks.queues(0);
    for _ in 0..36 {
        fixture.clock.advance(TTL / 3);
        asks.renew_place().unwrap();
        next.renew_hold(token, 1).unwrap();
    }
    fixture.clock.advance(TTL / 3); // now it was silent for more than a minute after its time
    newcomer.queues(1);
    assert_eq!(fixture.line().len(), 3, "it is not removed yet");
    asks.queues(0);
    assert_eq!(fixture.line(), [asks.owner.clone(), newcomer.owner.clone()]);
}

#[test]
fn when_all_waiters_are_absent_a_newcomer_gets_the_lock() {
    let fixture = Fixture::fair();
    let (alive, mut dead) = (fixture.client(), fixture.client());
    let (a, b) = (fixture.request(&alive, 1), fixture.request(&dead, 2));
    let token = a.gets_it();
    b.queues(0);
    dead.hangs_up();
    a.release(token).unwrap();
    assert!(fixture.holder().is_none());
    let newcomer = fixture.request(&alive, 3);
    assert!(matches!(newcomer.acquire(Wait::No).unwrap(), Acquired::Granted { lease: LEASE, .. }));
}

#[test]
fn a_waiter_that_asks_gets_the_lock_though_its_client_is_not_subscribed() {
    let fixture = Fixture::fair();
    let mut deaf = fixture.client();
    let [a, b, c] = fixture.requests(&deaf);
    let token = a.gets_it();
    b.queues(0);
    c.queues(1);
    deaf.hangs_up();
    a.release(token).unwrap();
    assert!(fixture.holder().is_none());
    // One call refreshes both, the later ticket first: the order is that of the tickets.
    let items = [&c, &b].map(|asker| Renew::Place { place: asker.place(), lease: LEASE });
    let answers: Vec<_> = fixture.backend.renew(deaf.id, &items).into_iter().map(Result::unwrap).collect();
    assert!(matches!(answers[0], Renewal::Waiting { rank: 0, .. }));
    assert!(matches!(answers[1], Renewal::Granted { .. }));
}

#[test]
fn a_process_that_was_stopped_finds_the_order_unchanged() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c, d] = fixture.requests(&client);
    let token = a.gets_it();
    for (rank, waiter) in [&b, &c, &d].into_iter().enumerate() {
        waiter.queues(rank as u64);
    }
    fixture.clock.jump(Duration::from_secs(20));
    assert!(matches!(d.renew_place().unwrap(), Renewal::Waiting { rank: 2, .. }));
    a.release(token).unwrap();
    let token = b.told_by(&client);
    c.renew_place().unwrap();
    fixture.clock.jump(Duration::from_secs(60));
    assert!(matches!(d.renew_place().unwrap(), Renewal::Waiting { rank: 0, .. }));
    assert!(c.told_by(&client) > token);
}

#[test]
fn a_waiter_looks_when_the_hold_ends_unless_its_next_heartbeat_is_not_later() {
    const SECOND: Duration = Duration::from_secs(1);
    let fixture = Fixture::fair();
    let (client, other) = (fixture.client(), fixture.client());
    let (a, b) = (fixture.request(&client, 1), fixture.request(&client, 2));
    let c = fixture.request(&other, 3);
    a.gets_it();
    let looks_in = |asker: &Asker<'_>| {
        let mut ask = asker.ask(Wait::Forever);
        ask.place.ttl = 6 * SECOND; // a heartbeat every two seconds
        let Ok(Acquired::Queued { recheck_in, .. }) = fixture.backend.acquire(&ask) else { panic!() };
        recheck_in
    };
    let moment = Duration::from_millis(1);
    fixture.clock.advance(LEASE - 2 * SECOND);
    assert_eq!((looks_in(&b), looks_in(&c)), (2 * SECOND + moment, Duration::MAX));
    fixture.clock.advance(moment);
    assert_eq!(looks_in(&c), 2 * SECOND);
    fixture.clock.advance(2 * SECOND - 2 * moment);
    assert_eq!(looks_in(&b), 2 * moment, "the next one gets it as soon as it is free");
}

#[test]
fn inspect_shows_the_holder_and_the_line() {
    let fixture = Fixture::fair();
    let client = fixture.client();
    let [a, b, c] = fixture.requests(&client);
    let token = a.gets_it();
    b.queues(0);
    fixture.clock.advance(Duration::from_secs(2));
    c.queues(1);
    let state = fixture.inspect();
    let holder = state.holder().cloned().unwrap();
    assert_eq!((holder.owner, holder.hold_count, holder.token), (a.owner, 1, Some(token)));
    assert_eq!(holder.lease_left, Some(LEASE - Duration::from_secs(2)));
    assert_eq!(holder.label.as_deref(), Some("a test"));
    let seen: Vec<_> = state.line.iter().map(|waiter| (waiter.request, waiter.waiting)).collect();
    let ages = [Some(Duration::from_secs(2)), Some(Duration::ZERO)];
    assert_eq!(seen, [(Some(b.request), ages[0]), (Some(c.request), ages[1])]);
    assert_eq!(state.line[0].place_left, Some(Duration::from_secs(3)));
    assert_eq!(state.line[0].label.as_deref(), Some("a test"));
}

/// The median of many hand-offs. Work for each waiter would make the long line some hundred times slower.
#[test]
fn a_hand_off_costs_no_more_with_twenty_thousand_waiters_than_with_ten() {
    let median = |waiters: u64| {
        let fixture = Fixture::fair();
        let client = fixture.client();
        let first = fixture.request(&client, 0);
        let mut token = first.gets_it();
        let mut line: VecDeque<_> = (1..=waiters).map(|number| fixture.request(&client, number)).collect();
        let queue = |waiter: &Asker<'_>| {
            assert!(matches!(waiter.acquire(Wait::Forever), Ok(Acquired::Queued { .. })));
        };
        line.iter().for_each(queue);
        let mut holder = first;
        let mut times: Vec<Duration> = Vec::new();
        for number in waiters + 1..=waiters + 500 {
            line.push_back(fixture.request(&client, number));
            line.back().into_iter().for_each(queue);
            let start = Instant::now();
            holder.release(token).unwrap();
            times.push(start.elapsed());
            holder = line.pop_front().unwrap();
            token = holder.told_by(&client);
        }
        times.sort();
        times[times.len() / 2]
    };
    let (short, long) = (median(10), median(20_000));
    assert!(long < short * 20, "{long:?} with a long line, {short:?} with a short one");
}
