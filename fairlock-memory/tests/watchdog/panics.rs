//! A logger or a backend that panics ends nothing: the watchdog continues, and holds that it can't renew are lost in time.

use std::sync::mpsc::channel;
use std::time::Duration;

use fairlock_core::{LockName, LostCause};

use crate::support::{LoggerPanics, S, World, assert_said, dead_holder, hold, said};

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

#[test]
fn with_a_logger_that_panics_a_loss_is_reported_before_another_owner_gets_the_lock() {
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

#[test]
fn a_backend_that_panics_in_a_renewal_is_asked_again() {
    let world = World::new();
    let client = world.client();
    let guards: Vec<_> = (0..3).map(|n| hold(&client, &format!("panics:{n}"))).collect();
    world.backend.panic_next("renew", 5);
    world.clock.advance(60 * S);
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_said("planned: renew");
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
}

#[test]
fn a_backend_that_panics_in_every_renewal_is_tried_with_pauses_and_its_holds_are_lost_in_time() {
    let world = World::new();
    let client = world.client();
    let lock = client.fair_lock("always").unwrap();
    let guard = lock.lock().unwrap();
    world.backend.panic_next("renew", u32::MAX);
    world.clock.advance(30 * S - S / 100);
    assert!(guard.lost().try_recv().is_ok());
    let tried = world.backend.calls("renew");
    assert!((15..100).contains(&tried), "tried {tried} times in 20 s");
    assert_eq!(said().len(), 2, "the panic, and the loss");
    drop(guard);
    // The panics end, and the next hold is renewed as usual.
    world.backend.panic_next("renew", 0);
    world.clock.advance(S);
    let guard = lock.lock().unwrap();
    world.clock.advance(100 * S);
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
}

#[test]
fn a_request_that_made_the_backend_panic_is_repeated() {
    let world = World::new();
    let _dead = dead_holder(&world, "asks", S);
    let client = world.builder().place_ttl(30 * S).build().unwrap();
    let request = client.fair_lock("asks").unwrap().request().unwrap();
    let asked = world.backend.calls("acquire");
    world.backend.panic_next("acquire", 1);
    world.clock.advance(S + S / 10); // it looks when the dead holder's lease ends
    assert_eq!(world.backend.calls("acquire"), asked + 2);
    assert!(request.decided().try_recv().is_ok());
    request.wait().unwrap().unlock().unwrap();
}

#[test]
fn a_withdrawal_that_made_the_backend_panic_is_repeated() {
    let world = World::new();
    let (holder, client) = (world.client(), world.client());
    let guard = holder.fair_lock("leaves").unwrap().lock().unwrap();
    let lock = client.fair_lock("leaves").unwrap();
    let request = lock.request().unwrap();
    world.backend.panic_next("withdraw", 2);
    drop(request);
    world.clock.advance(Duration::from_millis(500));
    assert_eq!(world.backend.calls("withdraw"), 3);
    assert!(lock.inspect().unwrap().line.is_empty());
    guard.unlock().unwrap();
}
