//! A logger that panics ends nothing: the watchdog continues, and holds that it can't renew are lost in time.

use std::sync::mpsc::channel;

use fairlock_core::{LockName, LostCause};

use crate::support::{LoggerPanics, S, World, hold};

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

/// With a logger that panics, a loss is reported before another owner gets the lock.
#[test]
fn with_a_panicking_logger_a_loss_is_reported_in_time() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let (tells, told) = channel();
    client.on_lost(move |lost| _ = tells.send(lost.lock.clone()));
    let guards: Vec<_> = (0..3).map(|n| hold(&client, &format!("lose:{n}"))).collect();
    let next = other.fair_lock("lose:0").unwrap().request().unwrap();
    let panics = LoggerPanics::from_here();
    world.cut_off(&client);
    world.clock.advance(30 * S - S / 100);
    assert!(next.decided().try_recv().is_err());
    for guard in &guards {
        let lost = guard.lost().try_recv().expect("it is told");
        assert_eq!(lost.cause, LostCause::NotRenewed);
    }
    world.clock.advance(S);
    assert!(next.decided().try_recv().is_ok());
    drop(panics);
    drop((guards, client));
    // Callbacks run on a separate thread, which finishes and ends when its client is gone.
    let mut locks: Vec<_> = std::iter::from_fn(|| told.recv_timeout(10 * S).ok()).collect();
    locks.sort_unstable();
    assert_eq!(locks.iter().map(LockName::as_str).collect::<Vec<_>>(), ["lose:0", "lose:1", "lose:2"]);
}
