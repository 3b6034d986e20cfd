//! How often a silent server is tried, and what the log says of it.

use std::time::Duration;

use fairlock_core::{Error, LostCause};
use fairlock_memory::Operation;

use crate::support::{S, World, said};

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
    let lines = said();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("not renewed (holds: 1, places: 0)"), "{lines:?}");
    world.bring_back(&client);
    world.clock.advance(S);
    assert!(!guard.is_lost());
    let lines = said();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("renewed again, or over (last not renewed: holds: 1, places: 0)"), "{lines:?}");
    world.clock.advance(100 * S);
    guard.unlock().unwrap();
    assert!(said().is_empty());
}

#[test]
fn an_outage_that_costs_the_hold_has_one_line_for_the_loss() {
    let world = World::new();
    let client = world.client();
    let guard = client.fair_lock("lost").unwrap().lock().unwrap();
    world.cut_off(&client);
    world.clock.advance(300 * S);
    assert!(matches!(guard.unlock(), Err(Error::Lost(lost)) if lost.cause == LostCause::NotRenewed));
    // The release that follows ends by itself. The watchdog starts it at once, beside this thread: so its lines are
    // checked together with those of the loss.
    let mut lines = said();
    world.clock.advance(50 * S);
    lines.extend(said());
    let with = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
    assert_eq!((with("not renewed ("), with("was lost by"), with("or over")), (1, 1, 1), "{lines:?}");
    assert_eq!((with("left to be repeated"), with("given up"), lines.len()), (1, 1, 5), "{lines:?}");
}

/// Acquired over ten seconds, so that their renewals are due one after the other.
#[test]
fn ten_thousand_holds_are_tried_together_without_a_line_for_each() {
    const HOLDS: u32 = 10_000;
    let world = World::new();
    let client = world.client();
    let mut guards = Vec::new();
    for number in 0..HOLDS {
        let lock = client.fair_lock(&format!("many:{number}")).unwrap();
        guards.push(lock.owned_by(&client.new_owner()).unwrap().lock().unwrap());
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
    let lines = said();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("holds: 10000,"), "{lines:?}");
}

/// Each loss has its line. Writing them must not keep the watchdog from holds that can be saved.
#[test]
fn a_slow_logger_with_thousands_of_losses_costs_no_other_hold() {
    const LOST: usize = 3000;
    let world = World::new();
    let client = world.builder().lease(2 * S).build().unwrap();
    let take =
        |name: &str| client.fair_lock(name).unwrap().owned_by(&client.new_owner()).unwrap().lock().unwrap();
    let kept = take("kept");
    let guards: Vec<_> = (0..LOST).map(|number| take(&format!("lost:{number}"))).collect();
    world.slow_logger(Duration::from_millis(1));
    guards.iter().for_each(|guard| world.backend.store.faults().lose_hold(guard.name()));
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
        world.backend.store.faults().fail_next(Operation::Renew, 1);
        world.clock.advance(10 * S);
    }
    let lines = said();
    assert!(lines.len() <= 2 * 11, "{} lines in ten minutes", lines.len());
    assert!(request.decided().try_recv().is_err());
}

/// Their callers have gone, so only the watchdog can tell the server.
#[test]
fn unanswered_releases_are_tried_together_and_given_up_in_one_line() {
    const HOLDS: u32 = 500;
    let world = World::new();
    let client = world.client();
    let guards: Vec<_> = (0..HOLDS)
        .map(|number| {
            let lock = client.fair_lock(&format!("drop:{number}")).unwrap();
            lock.owned_by(&client.new_owner()).unwrap().lock().unwrap()
        })
        .collect();
    world.cut_off(&client);
    drop(guards);
    world.clock.advance(S); // each is tried once more by the watchdog
    let lines = said();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("releases or withdrawals are left to be repeated"), "{lines:?}");
    let before = world.backend.calls("release");
    world.clock.advance(20 * S);
    let tried = world.backend.calls("release") - before;
    assert!((15..100).contains(&tried), "tried {tried} times in 20 s");
    assert!(said().is_empty());
    world.clock.advance(20 * S); // lease and place are over
    let lines = said();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("500 releases or withdrawals given up"), "{lines:?}");
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
    let requests: Vec<_> =
        (0..100).map(|_| lock.owned_by(&client.new_owner()).unwrap().request().unwrap()).collect();
    for waiter in lock.inspect().unwrap().line {
        assert!(lock.kick(&waiter).unwrap());
    }
    world.clock.advance(3 * S);
    let lines = said();
    assert_eq!((lines.len(), client.stats().places_lost), (1, 100), "{lines:?}");
    assert!(lines[0].contains("100 places are gone"), "{lines:?}");
    assert_eq!(lock.inspect().unwrap().line.len(), requests.len());
}
