//! The rounds of the watchdog: what goes together, what waits, and what ends it.

use super::logger::lines_about;
use super::store::{LEASE, Op, down, queued};
use super::support::{OUTAGE, PLACE, S, World, ms};
use crate::LostCause;
use crate::backend::Renewal;

#[test]
fn a_hold_is_renewed_three_times_a_lease() {
    let world = World::new();
    let guard = world.lock("renewed").lock().unwrap();
    world.clock.advance(100 * S);
    let renewals = world.store.times(Op::Renew);
    assert!((10..=11).contains(&renewals.len()), "{renewals:?}");
    assert!(!guard.is_lost());
    assert_eq!(
        (world.client.stats().renewals, world.client.stats().late_renewals),
        (renewals.len() as u64, 0)
    );
    guard.unlock().unwrap();
    world.clock.advance(100 * S);
    assert_eq!(world.store.times(Op::Renew).len(), renewals.len(), "not after the release");
}

#[test]
fn a_place_is_renewed_three_times_its_time_to_live() {
    let world = World::new();
    let request = world.in_line("place");
    world.clock.advance(9 * S);
    assert_eq!(world.store.times(Op::Renew), [1, 2, 3, 4, 5].map(|n| PLACE / 3 * n));
    drop(request);
}

#[test]
fn what_comes_due_soon_goes_with_what_is_due() {
    let world = World::new();
    let _first = world.lock("first").lock().unwrap();
    world.clock.advance(2 * S);
    let _second = world.lock("second").lock().unwrap();
    world.clock.advance(8 * S);
    let renewals: Vec<_> = world.store.asked().into_iter().filter(|asked| asked.op == Op::Renew).collect();
    assert!(matches!(&renewals[..], [one] if one.number == 2), "{renewals:?}");
}

#[test]
fn holds_are_renewed_before_places() {
    let world = World::new();
    world.store.plan().acquire.extend((0..20).map(queued));
    let _requests: Vec<_> = (0..20).map(|n| world.lock(&format!("first:{n}")).request().unwrap()).collect();
    let _guard = world.lock("first:held").lock().unwrap();
    world.clock.jump(10 * S); // all are due
    world.settle();
    let first = world.store.asked().into_iter().find(|asked| asked.op == Op::Renew).unwrap();
    assert_eq!((first.lock.as_str(), first.number), ("first:held", 21));
}

#[test]
fn the_request_that_was_made_first_is_asked_for_first() {
    let world = World::new();
    world.store.plan().acquire.extend((0..40).map(|_| queued(0)));
    let make = |n: usize| {
        world.clock.advance(ms(1));
        world.lock(&format!("order:{n}")).request().unwrap()
    };
    let _requests: Vec<_> = (0..20).map(make).collect();
    world.store.delay(Op::Acquire, ms(100));
    world.recheck(&world.claim("order:0"));
    world.settle(); // it is being asked for
    (1..20).for_each(|n| world.recheck(&world.claim(&format!("order:{n}"))));
    world.store.asked();
    world.clock.advance(ms(100));
    let asked = world.store.asked().into_iter().map(|asked| asked.lock);
    assert!(asked.eq((1..20).map(|n| format!("order:{n}"))));
}

#[test]
fn a_renewal_that_fails_is_repeated_at_once_and_then_with_pauses() {
    let world = World::new();
    let guard = world.lock("fails").lock().unwrap();
    world.store.plan().renew.extend([down(), down(), down()]);
    world.clock.advance(12 * S);
    let renewals = world.store.times(Op::Renew);
    assert_eq!((renewals.len(), renewals[1]), (4, renewals[0]), "{renewals:?}");
    let pauses = [renewals[2] - renewals[1], renewals[3] - renewals[2]];
    assert!(pauses[0] >= ms(25) && pauses[0] <= ms(50), "{pauses:?}");
    assert!(pauses[1] >= ms(50) && pauses[1] <= ms(100), "{pauses:?}");
    assert_eq!((guard.is_lost(), world.client.stats().late_renewals), (false, 1));
    // An answer ends the pauses: the next failure is repeated at once again.
    world.store.plan().renew.push_back(down());
    world.clock.advance(10 * S);
    let renewals = world.store.times(Op::Renew);
    assert_eq!((renewals.len(), renewals[5]), (6, renewals[4]), "{renewals:?}");
}

#[test]
fn a_hold_that_the_server_has_lost_is_lost_with_one_line() {
    let world = World::new();
    let guard = world.lock("watchdog:lost").lock().unwrap();
    world.store.plan().renew.push_back(Ok(Renewal::Lost));
    world.clock.advance(10 * S);
    assert_eq!(guard.lost().try_recv().unwrap().cause, LostCause::Taken);
    let said = lines_about("lock `watchdog:lost` was lost by");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_senseless_answer_is_no_answer() {
    let world = World::new();
    let guard = world.lock("senseless").lock().unwrap();
    world.store.plan().renew.push_back(Ok(Renewal::Waiting { rank: 0, recheck_in: S, latest: 1 }));
    world.clock.advance(LEASE);
    assert!(!guard.is_lost());
}

/// Its caller has asked meanwhile, and has the lock.
#[test]
fn a_hold_is_not_lost_by_the_late_news_that_its_place_was_gone() {
    let world = World::new();
    world.store.plan().acquire.push_back(queued(0));
    let waits = world.locks("late news");
    world.store.delay(Op::Renew, S);
    world.store.plan().renew.push_back(Ok(Renewal::Lost));
    world.clock.advance(2 * S); // the heartbeat is under way
    world.recheck(&world.claim("late news"));
    let guard = world.finish(&waits).0.unwrap();
    world.clock.advance(S);
    assert!(!guard.is_lost());
    assert_eq!(world.client.stats().lost, 0);
}

#[test]
fn a_place_without_a_ticket_that_is_gone_is_counted_and_asked_for_again() {
    let world = World::new();
    let without_ticket =
        crate::backend::Acquired::Queued { rank: 0, recheck_in: 60 * S, ticket: 0, latest: 0 };
    world.store.plan().acquire.extend([Ok(without_ticket), Ok(without_ticket)]);
    let _request = world.lock("no ticket").request().unwrap();
    world.store.plan().renew.push_back(Ok(Renewal::Lost));
    world.clock.advance(2 * S);
    assert_eq!(world.client.stats().places_lost, 1);
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Renew, Op::Acquire]);
}

#[test]
fn a_loss_is_reported_in_time_while_the_watchdog_waits_for_a_release_or_an_ask() {
    for op in [Op::Release, Op::Acquire] {
        let world = World::new();
        let short = world.lock("short").fixed_lease(3 * S).lock().unwrap();
        let dropped = world.lock("drops").lock().unwrap();
        world.store.plan().acquire.extend([queued(0), queued(0)]);
        let _request = world.lock("asks").request().unwrap();
        if op == Op::Release {
            world.store.plan().release.push_back(down());
            world.store.delay(op, ms(0)); // for the caller
            world.store.delay(op, 8 * S);
            drop(dropped);
        } else {
            dropped.leak();
            world.store.delay(op, 8 * S);
            world.recheck(&world.claim("asks"));
        }
        world.clock.advance(3 * S);
        assert_eq!(short.lost().try_recv().unwrap().cause, LostCause::LeaseOver, "{op:?}");
    }
}

#[test]
fn a_slow_round_makes_the_next_ones_renew_earlier_for_a_while_only() {
    let world = World::new();
    let guard = world.lock("slow").lock().unwrap();
    world.store.delay(Op::Renew, 3 * S);
    world.clock.advance(200 * S);
    let renewals = world.store.times(Op::Renew);
    assert!((19..=24).contains(&renewals.len()), "{renewals:?}");
    assert!(!guard.is_lost());
}

#[test]
fn a_quick_round_halves_the_time_that_the_next_one_is_thought_to_take() {
    let world = World::new();
    let _guard = world.lock("halves").lock().unwrap();
    let meanwhile = || *world.shared.timers.meanwhile.lock();
    world.store.delay(Op::Renew, 3 * S);
    world.clock.advance(14 * S);
    assert_eq!(meanwhile(), 3 * S);
    world.clock.advance(10 * S);
    assert_eq!((world.store.times(Op::Renew).len(), meanwhile()), (2, 3 * S / 2));
}

/// The heartbeats come due while the first call is under way.
#[test]
fn renewals_go_between_two_slow_calls_for_requests_without_a_caller() {
    const ASKS: usize = crate::config::MOST_AT_ONCE + 1;
    let world = World::new();
    world.store.plan().acquire.extend((0..2 * ASKS + 2).map(|_| queued(0)));
    let _first = world.lock("between:first").request().unwrap();
    let _others: Vec<_> = (0..ASKS).map(|n| world.lock(&format!("between:{n}")).request().unwrap()).collect();
    world.store.delay(Op::Acquire, S);
    world.recheck(&world.claim("between:first"));
    world.settle();
    // All of these are due when that call is over.
    world.store.delay(Op::Acquire, 2 * S);
    (0..ASKS).for_each(|n| world.recheck(&world.claim(&format!("between:{n}"))));
    world.store.asked();
    world.clock.advance(3 * S);
    let ops = world.store.ops();
    let last = ops.iter().rposition(|op| *op == Op::Acquire).unwrap();
    assert_eq!((ops.iter().filter(|op| **op == Op::Acquire).count(), ops[last - 1]), (ASKS, Op::Renew));
}

/// Another server keeps the locks that no call gets.
#[test]
fn a_first_ask_that_is_answered_does_not_end_the_pause_of_those_that_failed() {
    let world = World::new();
    let _answers = world.in_line("answers");
    world.store.cut("fails");
    world.store.cut("fails too");
    let _fails = world.lock("fails").request().unwrap();
    for _ in 0..100 {
        if world.store.calls_about("fails", Op::Acquire) < 6 {
            world.clock.step(S);
        }
    }
    assert_eq!(world.store.calls_about("fails", Op::Acquire), 6, "it has failed just now");
    world.store.plan().acquire.push_back(queued(0));
    world.recheck(&world.claim("answers"));
    world.settle();
    assert_eq!(world.store.calls_about("answers", Op::Acquire), 2);
    let _too = world.lock("fails too").request().unwrap();
    world.settle();
    assert_eq!(world.store.calls_about("fails too", Op::Acquire), 1, "its repeat waits for the pause of all");
}

#[test]
fn a_repeated_ask_that_is_answered_ends_the_pause_for_those_that_fail_later() {
    let world = World::new();
    world.store.cut("recovers");
    world.store.cut("later");
    let recovers = world.lock("recovers").request().unwrap();
    world.clock.advance(3 * S);
    world.store.restore("recovers");
    world.clock.advance(S);
    assert!(recovers.decided().try_recv().is_ok());
    let _later = world.lock("later").request().unwrap();
    world.clock.advance(ms(60));
    // Its caller's ask, the watchdog's, and one after the claim's own pause.
    assert_eq!(world.store.calls_about("later", Op::Acquire), 3);
}

#[test]
fn a_request_without_a_caller_fails_after_the_outage_limit_and_is_withdrawn() {
    let world = World::new();
    world.store.take_down(Op::Acquire);
    let request = world.lock("gives up").request().unwrap();
    world.clock.advance(OUTAGE - S);
    assert!(request.decided().try_recv().is_err());
    world.clock.advance(2 * S);
    assert!(request.decided().try_recv().is_ok());
    assert_eq!(world.store.times(Op::Withdraw).len(), 1);
    assert!(request.wait().is_err());
}

#[test]
fn a_renewal_that_panics_is_repeated_with_growing_pauses() {
    let world = World::new();
    let guard = world.lock("watchdog:panics").lock().unwrap();
    world.store.panic_next(Op::Renew, 3);
    world.clock.advance(12 * S);
    let renewals = world.store.times(Op::Renew);
    assert_eq!((renewals.len(), guard.is_lost()), (4, false), "{renewals:?}");
    assert!(renewals[2] > renewals[1] && renewals[3] > renewals[2], "{renewals:?}");
    let said = lines_about("the thread fairlock-dog panicked, and goes on: planned: Renew");
    assert_eq!(said.len(), 1, "one line a minute: {said:?}");
}

#[test]
fn an_ask_that_panics_is_repeated() {
    let world = World::new();
    let request = world.in_line("asks");
    world.store.panic_next(Op::Acquire, 1);
    world.recheck(&world.claim("asks"));
    world.clock.advance(2 * S);
    assert_eq!((request.decided().try_recv(), world.store.times(Op::Acquire).len()), (Ok(()), 3));
}

#[test]
fn the_threads_of_a_client_end_with_its_last_handle() {
    let world = World::new();
    let guard = world.lock("ends").lock().unwrap();
    world.clock.advance(10 * S);
    drop(guard);
    let (_, clock, gone) = world.without_handles();
    clock.advance(60 * S);
    assert!(gone.upgrade().is_none());
}
