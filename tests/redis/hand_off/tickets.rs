//! Places that the server has lost: waiters say their tickets, and are served in the order in which they asked.

use std::time::Duration;

use fairlock::{Client, OwnedGuard, OwnedRequest};

use crate::support::*;

const TTL: Duration = Duration::from_millis(1500);
const NAME: &str = "lost";
const QUEUE: &str = "fairlock_queue:{lost}";
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
        let server = CleanServer::start().allow(&[QUEUE, PLACES]);
        let clients: Vec<_> = (0..5).map(|_| with_places(&server.url(), TTL)).collect();
        let guard = take(&clients[0], NAME);
        let requests = clients[1..].iter().enumerate().map(|(number, client)| {
            let request = request(client, NAME);
            until_in_queue(&server, NAME, number + 1);
            request
        });
        World { requests: requests.collect(), clients, guard, server }
    }

    fn serve_in_order(self, more: Option<OwnedRequest>) {
        let held = self.guard.token();
        let _ = self.guard.unlock(); // or lost with the queue
        in_turn(self.requests.into_iter().chain(more), held);
        assert!(self.clients.iter().all(|client| client.stats().places_lost == 0));
    }
}

/// Evicted or deleted by hand: both keys, or one of them; or all, by FLUSHALL or a restart: nothing says who held the lock, nor
/// that there ever was one. The holder releases the lock before any heartbeat, or when all have spoken.
#[test]
fn a_queue_whose_keys_are_gone_is_served_in_its_order() {
    for (keys, have_spoken) in [
        (&[QUEUE, PLACES][..], false),
        (&[QUEUE], false),
        (&[PLACES], false),
        (&[NAME, QUEUE, PLACES], false),
        (&[QUEUE, PLACES], true),
    ] {
        println!("without {keys:?}, and all have spoken: {have_spoken}");
        let world = World::new();
        let before = queue(&world.server, NAME);
        world.server.query::<()>(&[&["DEL"], keys].concat());
        if have_spoken {
            eventually("the queue is back", || queue(&world.server, NAME) == before);
        }
        world.serve_in_order(None);
    }
}

/// It knows the first two, and the lock's last number is that of the second.
#[test]
fn places_that_a_fail_over_has_forgotten_are_put_back() {
    let mut world = World::new();
    let before = queue(&world.server, NAME);
    let score: String = world.server.query(&["ZSCORE", QUEUE, &before[1]]);
    set_last_number(&world.server, NAME, score.parse().unwrap());
    for member in &before[2..] {
        world.server.query::<()>(&["ZREM", QUEUE, member]);
        world.server.query::<()>(&["HDEL", PLACES, member]);
    }
    // A newcomer stands behind those that have not spoken yet.
    world.clients.push(with_places(&world.server.url(), TTL));
    let newest = request(&world.clients[5], NAME);
    eventually("all are back", || queue(&world.server, NAME).starts_with(&before));
    world.serve_in_order(Some(newest));
}

/// The client sends them in batches. What it takes is printed, since it depends on the machine.
#[test]
fn thousands_of_lost_places_of_a_client_are_back_in_few_trips() {
    const WAITERS: usize = 3000;
    let server = CleanServer::start().allow(&[QUEUE, PLACES]);
    let [holder, ours] = [LONG, Duration::from_secs(6)].map(|ttl| with_places(&server.url(), ttl));
    let guard = take(&holder, NAME);
    let requests: Vec<_> = (0..WAITERS).map(|_| request(&ours, NAME)).collect();
    let before = queue(&server, NAME);
    assert_eq!(before.len(), WAITERS);
    let stat = |section, name: &str| -> f64 {
        let info: String = server.query(&["INFO", section]);
        let value = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        value.unwrap().trim().parse().unwrap()
    };
    let mut con = server.con();
    let mut own = 0; // reads of our own: INFO over a new connection, DEL, and each look
    let [reads, work] = [stat("stats", "total_reads_processed"), stat("cpu", "used_cpu_user")];
    redis::cmd("DEL").arg(&[QUEUE, PLACES]).exec(&mut con).unwrap();
    let took = eventually("all are back", || {
        own += 1;
        redis::cmd("ZCARD").arg(QUEUE).query::<usize>(&mut con).unwrap() == WAITERS
    });
    let reads = stat("stats", "total_reads_processed") - reads - f64::from(own);
    let work = stat("cpu", "used_cpu_user") - work;
    println!("{WAITERS} places were back after {took:?}, {reads} reads and {work:.2} s of the server");
    assert!(reads < WAITERS as f64 / 10.0, "{reads} reads for {WAITERS} places");
    assert_eq!(queue(&server, NAME), before);
    drop((requests, guard));
    eventually("all have left", || queue(&server, NAME).is_empty());
}
