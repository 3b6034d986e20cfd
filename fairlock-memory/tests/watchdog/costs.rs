//! What the watchdog costs: threads, and calls for many requests that were dropped or have lost their places.

use std::thread;
use std::time::Duration;

use fairlock_core::{Client, Guard, Owner, Request, TryLock};
use fairlock_memory::{MemoryBackend, Operation};

use crate::support::{S, World, ask};

const REQUESTS: u32 = 1000;

/// The most requests in one call.
const AT_ONCE: u32 = 128;

/// How many threads this process has started so far, with the one that finds out.
fn threads_started() -> u64 {
    let probe = thread::spawn(|| format!("{:?}", thread::current().id())).join().unwrap();
    probe.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Ten locks with a holder, and a hundred requests of another client for each.
struct Queues {
    holder: Client,
    client: Client,
    names: Vec<String>,
    _guards: Vec<Guard>,
    requests: Vec<Request<Owner>>,
}

impl Queues {
    fn of(world: &World, client: Client, name: &str) -> Queues {
        let holder = world.client();
        let names: Vec<String> = (0..REQUESTS / 100).map(|number| format!("{name}:{number}")).collect();
        let guards = names.iter().map(|name| holder.fair_lock(name).unwrap().lock().unwrap()).collect();
        let name = |number: u32| &names[number as usize % names.len()];
        let requests = (0..REQUESTS).map(|number| ask(&client, name(number))).collect();
        Queues { holder, client, names, _guards: guards, requests }
    }

    fn length(&self) -> u64 {
        let length = |name| self.holder.fair_lock(name).unwrap().admin().inspect().unwrap().queue_length;
        self.names.iter().map(|name| length(name.as_str())).sum()
    }

    /// The places vanish, and each is restored when its request asks.
    fn lose_places(&self, world: &World) {
        self.names.iter().for_each(|name| world.faults().lose_queue(name));
        assert_eq!(self.length(), 0);
    }
}

#[test]
fn a_hundred_waits_that_end_busy_start_two_threads() {
    let _world = World::new(); // no other test starts threads meanwhile
    let backend = MemoryBackend::new();
    let holder = Client::new(backend.clone()).unwrap();
    let _guard = holder.fair_lock("busy").unwrap().lock().unwrap();
    let client = Client::new(backend).unwrap();
    let lock = client.fair_lock("busy").unwrap();
    let before = threads_started();
    for _ in 0..100 {
        assert!(matches!(lock.try_lock_for(Duration::from_millis(1)).unwrap(), TryLock::Busy(_)));
    }
    let started = threads_started() - before - 1;
    // Its own two; the test runner may start some too.
    assert!(started < 20, "{started} threads");
}

#[test]
fn dropped_requests_are_withdrawn_many_in_a_call() {
    let world = World::new();
    let mut queues = Queues::of(&world, world.client(), "queue");
    world.faults().delay_next(Operation::Withdraw, 1, S);
    drop(queues.requests.pop());
    world.clock.advance(Duration::ZERO); // the first withdrawal is under way
    queues.requests.clear();
    world.clock.advance(S);
    assert_eq!((queues.length(), queues.client.waiting().len()), (0, 0));
    let calls = world.backend.calls("withdraw");
    assert!(calls <= 1 + REQUESTS.div_ceil(AT_ONCE), "{calls} calls for {REQUESTS} requests");
}

#[test]
fn lost_places_are_asked_for_many_in_a_call() {
    let world = World::new();
    let queues = Queues::of(&world, world.client(), "queue");
    queues.lose_places(&world);
    let [asked, renewed] = ["acquire", "renew"].map(|name| world.backend.calls(name));
    world.clock.advance(2 * S);
    assert_eq!((queues.length(), queues.client.stats().places_lost), (REQUESTS.into(), 0));
    let calls = world.backend.calls("acquire") - asked;
    assert!(calls <= REQUESTS.div_ceil(AT_ONCE), "{calls} calls for {REQUESTS} places");
    let calls = world.backend.calls("renew") - renewed;
    assert!(calls <= 2, "{calls} renewals");
}
