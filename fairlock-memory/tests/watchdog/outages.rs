//! How often a silent server is tried, and what the log says of it.

use std::time::Duration;

use crate::support::{S, World, hold, said};

/// The watchdog repeats their releases, and warns if these fail too.
#[test]
fn guards_that_are_dropped_in_an_outage_are_one_line() {
    let world = World::new();
    let client = world.client();
    let guards: Vec<_> = (0..100).map(|number| hold(&client, &format!("dropped:{number}"))).collect();
    world.cut_off(&client);
    drop(guards);
    world.clock.advance(S);
    let lines = said();
    assert!(lines.len() == 1 && lines[0].contains(" unanswered releases or withdrawals)"), "{lines:?}");
    world.bring_back(&client);
}

/// Each loss has its line in the log. Writing these lines must not keep the watchdog from holds that can be saved.
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
