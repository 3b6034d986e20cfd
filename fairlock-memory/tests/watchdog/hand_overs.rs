//! The lease of a hold that was handed over.

use std::time::Duration;

use crate::support::{S, World, ask};

const SECTION: Duration = Duration::from_millis(80);

#[test]
fn a_hold_that_was_handed_over_survives_an_outage_of_more_than_its_places_time() {
    let world = World::new();
    let (holder, client) = (world.client(), world.client());
    let guard = holder.fair_lock("raised").unwrap().lock().unwrap();
    let request = client.fair_lock("raised").unwrap().request().unwrap();
    guard.unlock().unwrap();
    let guard = request.wait().unwrap();
    assert!(guard.valid_for() <= 5 * S, "the rest of its place");
    world.clock.advance(S / 10);
    assert!(guard.valid_for() > 29 * S);
    world.cut_off(&client);
    world.clock.advance(19 * S);
    assert!(!guard.is_lost());
}

#[test]
fn a_short_critical_section_is_not_renewed() {
    const TURNS: usize = 20;
    let world = World::new();
    let clients = [(); 3].map(|()| world.client());
    let first = clients[0].fair_lock("short").unwrap().lock().unwrap();
    let line: Vec<_> = (0..TURNS).map(|turn| ask(&clients[turn % 3], "short")).collect();
    first.unlock().unwrap();
    for request in line {
        let guard = request.wait().unwrap();
        world.clock.advance(SECTION);
        guard.unlock().unwrap();
    }
    let renewals: u64 = clients.iter().map(|client| client.stats().renewals).sum();
    assert_eq!(renewals, 0);
    assert!(world.backend.calls("renew") <= 3, "one heartbeat for each client with waiters");
}
