//! Places that the server has lost: waiters say their tickets, and are served in the order in which they asked.

use std::time::Duration;

use fairlock::{Client, OwnedGuard, OwnedRequest};

use crate::support::*;

const TTL: Duration = Duration::from_millis(1500);
const NAME: &str = "lost";
const LINE: &str = "fairlock_line:{lost}";
const PLACES: &str = "fairlock_record:{lost}";

/// A holder, and four waiters behind it, each with its own client.
struct World {
    guard: OwnedGuard,
    requests: Vec<OwnedRequest>,
    clients: Vec<Client>,
    server: CleanServer,
}

impl World {
    fn new() -> World {
        let server = CleanServer::start().allow(&[LINE, PLACES]);
        let clients: Vec<_> = (0..5).map(|_| with_places(&server.url(), TTL)).collect();
        let guard = take(&clients[0], NAME);
        let requests = clients[1..].iter().enumerate().map(|(number, client)| {
            let request = request(client, NAME);
            until_in_line(&server, NAME, number + 1);
            request
        });
        World { requests: requests.collect(), clients, guard, server }
    }

    fn serve_in_order(self, more: Option<OwnedRequest>) {
        let held = self.guard.token();
        let _ = self.guard.unlock(); // or lost with the line
        in_turn(self.requests.into_iter().chain(more), held);
        assert!(self.clients.iter().all(|client| client.stats().places_lost == 0));
    }
}

/// Evicted or deleted by hand: both keys, or one of them; or all, by FLUSHALL or a restart: nothing says who held the lock, nor
/// that there ever was one. The holder releases the lock before any heartbeat, or when all have spoken.
#[test]
fn a_line_whose_keys_are_gone_is_served_in_its_order() {
    for (keys, have_spoken) in [
        (&[LINE, PLACES][..], false),
        (&[LINE], false),
        (&[PLACES], false),
        (&[NAME, LINE, PLACES], false),
        (&[LINE, PLACES], true),
    ] {
        println!("without {keys:?}, and all have spoken: {have_spoken}");
        let world = World::new();
        let before = line(&world.server, NAME);
        world.server.query::<()>(&[&["DEL"], keys].concat());
        if have_spoken {
            eventually(SOON, "the line is back", || line(&world.server, NAME) == before);
        }
        world.serve_in_order(None);
    }
}

/// It knows the first two, and the lock's last number is that of the second.
#[test]
fn places_that_a_fail_over_has_forgotten_are_put_back() {
    let mut world = World::new();
    let before = line(&world.server, NAME);
    let score: String = world.server.query(&["ZSCORE", LINE, &before[1]]);
    set_last_number(&world.server, NAME, score.parse().unwrap());
    for member in &before[2..] {
        world.server.query::<()>(&["ZREM", LINE, member]);
        world.server.query::<()>(&["HDEL", PLACES, member]);
    }
    // A newcomer stands behind those that have not spoken yet.
    world.clients.push(with_places(&world.server.url(), TTL));
    let newest = request(&world.clients[5], NAME);
    eventually(SOON, "all are back", || line(&world.server, NAME).starts_with(&before));
    world.serve_in_order(Some(newest));
}
