//! Places that the server has lost: waiters say their tickets, and are served in the order in which they asked.

use std::time::Duration;

use fairlock::{Client, OwnedGuard, OwnedRequest};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

use crate::support::{SOON, client, granted, line, request, set_last_number, until_in_line};

const TTL: Duration = Duration::from_millis(1500);
const NAME: &str = "lost";
const LINE: &str = "fairlock_line:{lost}";
const PLACES: &str = "fairlock_record:{lost}";
const SEQUENCE: &str = "fairlock_record:{lost}";

/// A holder, and four waiters behind it, each with its own client.
struct World {
    server: RedisServer,
    clients: Vec<Client>,
    guard: OwnedGuard,
    requests: Vec<OwnedRequest>,
}

impl World {
    fn new() -> World {
        let server = RedisServer::start();
        let clients: Vec<_> = (0..5).map(|_| client(&server.url(), TTL)).collect();
        let guard = granted(request(&clients[0], NAME), SOON);
        let requests = clients[1..].iter().enumerate().map(|(number, client)| {
            let request = request(client, NAME);
            until_in_line(&server, NAME, number + 1);
            request
        });
        let requests = requests.collect();
        World { server, clients, guard, requests }
    }

    fn lose(&self, keys: &[&str]) {
        self.server.query::<()>(&[&["DEL"], keys].concat());
    }

    /// Each waits for the earlier ones, and then gets the lock. Had one been passed over, the other would hold
    /// the lock, and keep it.
    fn serve_in_order(self, more: Option<OwnedRequest>) {
        let mut before = self.guard.token();
        let _ = self.guard.unlock(); // or lost with the line
        for request in self.requests.into_iter().chain(more) {
            let guard = granted(request, SOON);
            assert!(guard.token() > before);
            before = guard.token();
            guard.unlock().unwrap();
        }
        assert!(self.clients.iter().all(|client| client.stats().places_lost == 0));
        drop(self.clients);
        assert_no_residue(&self.server, &[LINE, PLACES]);
    }
}

/// Evicted or deleted by hand: both keys, or one of them. The holder releases the lock before any heartbeat.
#[test]
fn a_line_whose_keys_are_gone_is_served_in_its_order() {
    let _alone = Alone::here();
    for keys in [&[LINE, PLACES][..], &[LINE], &[PLACES]] {
        let world = World::new();
        world.lose(keys);
        world.serve_in_order(None);
    }
}

/// The same, when all have spoken.
#[test]
fn a_line_whose_keys_are_gone_comes_back_as_it_was() {
    let _alone = Alone::here();
    let world = World::new();
    let before = line(&world.server, NAME);
    world.lose(&[LINE, PLACES]);
    eventually(SOON, "the line is back", || line(&world.server, NAME) == before);
    world.serve_in_order(None);
}

/// FLUSHALL, or a restart without persistence: nothing says who held the lock, nor that there ever was one.
#[test]
fn the_line_of_an_emptied_server_is_served_in_its_order() {
    let _alone = Alone::here();
    let world = World::new();
    world.lose(&[NAME, LINE, PLACES, SEQUENCE]);
    world.serve_in_order(None);
}

/// It knows the first two, and the lock's last number is that of the second.
#[test]
fn places_that_a_fail_over_has_forgotten_are_put_back() {
    let _alone = Alone::here();
    let world = World::new();
    let before = line(&world.server, NAME);
    let score: String = world.server.query(&["ZSCORE", LINE, &before[1]]);
    set_last_number(&world.server, NAME, score.parse().unwrap());
    for member in &before[2..] {
        world.server.query::<()>(&["ZREM", LINE, member]);
        world.server.query::<()>(&["HDEL", PLACES, member]);
    }
    // A newcomer stands behind those that have not spoken yet.
    let newcomer = client(&world.server.url(), TTL);
    let newest = request(&newcomer, NAME);
    eventually(SOON, "all are back", || line(&world.server, NAME).starts_with(&before));
    world.serve_in_order(Some(newest));
}

/// The keys end by the server's clock, and places do not: a clock that is stepped by hours removes no place.
#[test]
fn the_keys_of_a_line_last_for_a_day() {
    let _alone = Alone::here();
    let world = World::new();
    let lasts = |key| world.server.query::<u64>(&["TTL", key]);
    assert!(lasts(LINE) > 23 * 3600 && lasts(PLACES) > 23 * 3600);
    world.serve_in_order(None);
}

/// A ticket that the sequence can't have given out: its clock is behind, and it has forgotten its last numbers.
#[test]
fn a_server_that_is_behind_its_former_numbers_puts_waiters_at_the_tail() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server.url(), TTL), client(&server.url(), TTL));
    // As after a clock that was an hour ahead.
    let (seconds, _): (u64, u64) = server.query(&["TIME"]);
    let ahead = (seconds + 3600) * 1_000_000;
    set_last_number(&server, NAME, ahead);
    let guard = granted(request(&holder, NAME), SOON);
    let waiting = request(&waiter, NAME);
    server.query::<()>(&["DEL", LINE, PLACES, SEQUENCE]);
    let newer = request(&holder, NAME);
    eventually(SOON, "it has asked again", || waiter.stats().places_lost == 1);
    assert_eq!(line(&server, NAME).len(), 2);
    guard.unlock().unwrap();
    granted(newer, SOON).unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    drop((holder, waiter));
    assert_no_residue(&server, &[]);
}
