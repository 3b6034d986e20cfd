//! A logger that panics ends nothing: the watchdog continues, and holds that it can't renew are lost in time.

use crate::support::{LoggerPanics, S, World};

#[test]
fn a_logger_that_panics_costs_no_hold_that_can_be_kept() {
    let world = World::new();
    let client = world.client();
    let guard = client.fair_lock("pipe").unwrap().lock().unwrap();
    let panics = LoggerPanics::from_here();
    world.cut_off(&client);
    world.clock.advance(15 * S); // that would be told of
    world.bring_back(&client);
    world.clock.advance(60 * S);
    assert!(!guard.is_lost());
    // Nor does it harm callers.
    let lock = client.fair_lock("other").unwrap();
    for _ in 0..3 {
        lock.lock().unwrap().unlock().unwrap();
    }
    drop(panics);
    guard.unlock().unwrap();
}
