//! How often a silent server is tried, and what the log says of it.

use std::time::Duration;

use fairlock_core::{Error, LostCause};
use fairlock_memory::Operation;

use crate::support::{S, World, ask, assert_said, hold, said};

#[test]
fn a_hold_is_tried_about_twice_a_second_during_an_outage_which_is_three_lines() {
    let world = World::new();
    let client = world.client();
    let guard = client.fair_lock("outage").unwrap().lock().unwrap();
    world.clock.advance(9 * S);
    assert_eq!((world.backend.calls("renew"), said().len()), (0, 0));
    world.cut_off(&client);
    world.clock.advance(18 * S); // it fails from the tenth second on
    let tried = world.backend.calls("renew");
    assert!((17..80).contains(&tried), "tried {tried} times in 17 s");
    assert_said("an outage has begun, affecting 1 hold and 0 waiters of ");
    world.bring_back(&client);
    world.clock.advance(S);
    assert!(!guard.is_lost());
    assert_said("it affected 1 hold and 0 waiters of ");
    world.clock.advance(100 * S);
    guard.unlock().unwrap();
    assert!(said().is_empty());
}

/// A hold and a waiter that are due only later count as well: the server answers for neither.
#[test]
fn each_line_of_an_outage_tells_how_many_holds_and_waiters_it_concerns() {
    let world = World::new();
    let (other, client) = (world.client(), world.builder().label("orders-3").build().unwrap());
    let _taken = other.fair_lock("taken").unwrap().lock().unwrap();
    let guards: Vec<_> = (0..3).map(|n| hold(&client, &format!("held:{n}"))).collect();
    let requests = [(); 2].map(|()| ask(&client, "taken"));
    world.cut_off(&client);
    world.clock.advance(2 * S); // the places are due, the holds are not
    let begins = said();
    world.clock.advance(3 * S);
    let dropped = requests.into_iter().next(); // the other one leaves the line
    world.bring_back(&client);
    world.clock.advance(S);
    let over = said();
    assert_eq!((begins.len(), over.len()), (1, 1), "{begins:?} {over:?}");
    assert!(
        begins[0].contains("begun, affecting 3 holds and 2 waiters of orders-3; lock `taken`: "),
        "{begins:?}"
    );
    assert!(over[0].contains("it affected 3 holds and 2 waiters of orders-3"), "{over:?}");
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    drop(dropped);
}

/// Some locks are on a server that answers.
#[test]
fn where_some_calls_are_answered_an_outage_concerns_those_that_failed() {
    let world = World::new();
    let client = world.builder().place_ttl(60 * S).build().unwrap();
    let guards: Vec<_> = (0..5).map(|n| hold(&client, &format!("some:{n}"))).collect();
    world.backend.leave_out_answers(2);
    world.clock.advance(10 * S);
    let lines = said();
    assert!(lines[0].contains("an outage has begun, affecting 2 holds and 0 waiters"), "{lines:?}");
    drop(guards);
}

#[test]
fn one_loss_is_one_warning_also_in_an_outage_and_when_its_guard_is_unlocked() {
    let world = World::new();
    let client = world.client();
    let guard = client.fair_lock("lost").unwrap().lock().unwrap();
    world.cut_off(&client);
    world.clock.advance(300 * S);
    assert!(matches!(guard.unlock(), Err(Error::Lost(lost)) if lost.cause == LostCause::NotRenewed));
    // The watchdog begins the release at once, beside this thread, and gives it up when the server has forgotten the hold.
    let mut lines = said();
    world.clock.advance(50 * S);
    lines.extend(said());
    assert_eq!(lines.iter().filter(|line| line.contains("was lost by")).count(), 1, "{lines:?}");
    assert!(lines[0].contains("an outage has begun, affecting 1 hold and 0 waiters"), "{lines:?}");
    let others = lines.iter().filter(|line| !line.contains("outage")).count();
    assert_eq!((others, lines.iter().filter(|line| line.contains("has begun")).count()), (1, 1), "{lines:?}");
    // No answer has come since, so the outage may last. The next one ends it.
    assert!(!lines.iter().any(|line| line.contains("over")), "{lines:?}");
    world.bring_back(&client);
    client.fair_lock("next").unwrap().lock().unwrap().unlock().unwrap();
    world.clock.advance(S);
    assert_said("is over after 34");
}

#[test]
fn a_hold_that_is_taken_by_force_is_one_warning() {
    let world = World::new();
    let (client, operator) = (world.client(), world.client());
    let lock = client.fair_lock("forced").unwrap();
    for unlocks in [true, false] {
        let guard = lock.lock().unwrap();
        assert!(operator.fair_lock("forced").unwrap().force_unlock().unwrap());
        world.clock.advance(S);
        if unlocks {
            assert!(matches!(guard.unlock(), Err(Error::Lost(_))));
        } else {
            drop(guard);
        }
        world.clock.advance(60 * S);
        assert_said("lock `forced` was lost by");
    }
}

/// Acquired over ten seconds, so that their renewals are due one after the other.
#[test]
fn ten_thousand_holds_are_tried_together_without_a_line_for_each() {
    const HOLDS: u32 = 10_000;
    let world = World::new();
    let client = world.client();
    let mut guards = Vec::new();
    for number in 0..HOLDS {
        guards.push(hold(&client, &format!("many:{number}")));
        if number % 500 == 0 {
            world.clock.advance(S / 2);
        }
    }
    world.cut_off(&client);
    let before = world.backend.calls("renew");
    world.clock.advance(15 * S);
    let tried = world.backend.calls("renew") - before;
    assert!((10..80).contains(&tried), "tried {tried} times in 15 s");
    let lines = said();
    assert!(lines.len() <= 1, "{} lines: {:?}", lines.len(), lines.first());
    world.bring_back(&client);
    world.clock.advance(S);
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_said("it affected 10000 holds and 0 waiters");
}

/// Each loss has its line. Writing them must not keep the watchdog from holds that can be saved.
#[test]
fn a_slow_logger_with_thousands_of_losses_costs_no_other_hold() {
    const LOST: usize = 3000;
    let world = World::new();
    let client = world.builder().lease(2 * S).build().unwrap();
    let kept = hold(&client, "kept");
    let guards: Vec<_> = (0..LOST).map(|number| hold(&client, &format!("lost:{number}"))).collect();
    world.slow_logger(Duration::from_millis(1));
    guards.iter().for_each(|guard| world.faults().lose_hold(guard.name()));
    world.clock.advance(S);
    assert!(guards.iter().all(|guard| guard.lost().try_recv().is_ok()), "they are told at once");
    world.clock.advance(9 * S);
    assert!(!kept.is_lost());
    assert_eq!(said().len(), LOST);
}

#[test]
fn an_outage_of_ten_minutes_is_a_line_a_minute() {
    let world = World::new();
    let (holder, client) = (world.builder().lease(3600 * S).build().unwrap(), world.client());
    let _guard = holder.fair_lock("long").unwrap().lock().unwrap();
    let client_of_long_lease = world.builder().lease(7200 * S).build().unwrap();
    let _kept = client_of_long_lease.fair_lock("kept").unwrap().lock().unwrap();
    world.clock.advance(2300 * S);
    said();
    world.cut_off(&client_of_long_lease);
    world.clock.advance(600 * S + S);
    let lines = said();
    assert!((9..=11).contains(&lines.len()), "{lines:?}");
    drop(client);
}

/// One request in twenty is lost, all the time.
#[test]
fn a_server_that_drops_a_request_now_and_then_is_a_line_a_minute_at_most() {
    let world = World::new();
    let (holder, client) = (world.client(), world.client());
    let _guard = holder.fair_lock("drops").unwrap().lock().unwrap();
    let request = client.fair_lock("drops").unwrap().request().unwrap();
    for _ in 0..60 {
        world.faults().fail_next(Operation::Renew, 1);
        world.clock.advance(10 * S);
    }
    let lines = said();
    assert!(lines.len() <= 2 * 11, "{} lines in ten minutes", lines.len());
    assert!(request.decided().try_recv().is_err());
}

/// Their callers have gone, so only the watchdog can tell the server.
#[test]
fn unanswered_releases_are_tried_together_and_are_part_of_the_outage() {
    const HOLDS: u32 = 500;
    let world = World::new();
    let client = world.client();
    let guards: Vec<_> = (0..HOLDS).map(|number| hold(&client, &format!("drop:{number}"))).collect();
    world.cut_off(&client);
    drop(guards);
    world.clock.advance(S); // each is tried once more by the watchdog
    assert_said("an outage has begun, affecting 0 holds and 0 waiters (");
    let before = world.backend.calls("release");
    world.clock.advance(20 * S);
    let tried = world.backend.calls("release") - before;
    assert!((15..100).contains(&tried), "tried {tried} times in 20 s");
    assert!(said().is_empty());
    world.clock.advance(20 * S); // lease and place are over
    assert!(said().is_empty(), "the server has forgotten them too");
    let before = world.backend.calls("release");
    world.clock.advance(20 * S);
    assert_eq!(world.backend.calls("release"), before);
}

#[test]
fn unanswered_releases_are_repeated_at_once_when_the_server_is_back() {
    let world = World::new();
    let client = world.client();
    let locks: Vec<_> = (0..200).map(|number| client.fair_lock(&format!("back:{number}")).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    world.cut_off(&client);
    drop(guards);
    world.clock.advance(5 * S);
    world.bring_back(&client);
    world.clock.advance(Duration::from_millis(1));
    assert!(locks.iter().all(|lock| !lock.is_locked().unwrap()));
}

#[test]
fn places_that_the_server_lost_are_one_line() {
    let world = World::new();
    let (holder, client) = (world.client(), world.client());
    let lock = client.fair_lock("forgot").unwrap();
    let _guard = holder.fair_lock("forgot").unwrap().lock().unwrap();
    let requests: Vec<_> = (0..100).map(|_| ask(&client, "forgot")).collect();
    for waiter in lock.inspect().unwrap().line {
        assert!(lock.kick(&waiter).unwrap());
    }
    world.clock.advance(3 * S);
    let lines = said();
    assert_eq!((lines.len(), client.stats().places_lost), (1, 100), "{lines:?}");
    assert!(lines[0].contains("has lost 100 place(s)"), "{lines:?}");
    assert_eq!(lock.inspect().unwrap().line.len(), requests.len());
}

/// As if the process had stood still for longer than any lease.
#[test]
fn after_a_jump_to_the_last_time_holds_are_lost_and_locks_work() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock("late").unwrap();
    let guard = lock.lock().unwrap();
    world.clock.jump(Duration::MAX);
    assert!(guard.is_lost());
    drop(guard);
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        guard.renew().unwrap();
        guard.unlock().unwrap();
        world.clock.jump(Duration::MAX);
    }
    client.shutdown().unwrap();
}
