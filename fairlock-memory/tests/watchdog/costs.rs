//! What the watchdog costs: threads, and calls for many requests that were dropped or have lost their places.

use std::thread;
use std::time::Duration;

use fairlock_core::{Client, LockGuard, OwnedRequest, Stats, TryLock};
use fairlock_memory::{MemoryBackend, Operation};

use crate::support::{S, World, ask, threads_of_name};

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
    _guards: Vec<LockGuard>,
    requests: Vec<OwnedRequest>,
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
        let length = |name| self.holder.fair_lock(name).unwrap().inspect().unwrap().queue_length;
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

/// A client whose watchdog never waits for the server has one thread.
#[test]
fn a_watchdog_that_never_waits_needs_one_thread() {
    let _world = World::new();
    let client = Client::new(MemoryBackend::new()).unwrap();
    let lock = client.fair_lock("idle").unwrap();
    let before = threads_of_name("fairlock-expiry");
    for _ in 0..100 {
        lock.lock().unwrap().unlock().unwrap();
    }
    let after = threads_of_name("fairlock-expiry");
    assert!(after <= before, "{after} after {before}");
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
fn releases_that_were_not_answered_are_repeated_many_in_a_call() {
    let world = World::new();
    let client = world.client();
    let locks: Vec<_> =
        (0..REQUESTS).map(|number| client.fair_lock(&format!("held:{number}")).unwrap()).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    world.cut_off(&client);
    drop(guards);
    world.clock.advance(S);
    world.bring_back(&client);
    let before = world.backend.calls("release");
    world.clock.advance(S);
    assert!(locks.iter().all(|lock| !lock.is_locked().unwrap()));
    let calls = world.backend.calls("release") - before;
    assert!(calls <= 1 + REQUESTS.div_ceil(AT_ONCE), "{calls} calls for {REQUESTS} releases");
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

/// A hold is renewed in time while lost places and dropped requests are settled. Each call takes longer than a turn.
#[test]
fn holds_are_renewed_while_places_and_drops_are_settled() {
    let world = World::new();
    let client = world.builder().lease(3 * S).build().unwrap();
    let kept = client.fair_lock("kept").unwrap().lock().unwrap();
    let [live, mut dropped] = ["live", "dropped"].map(|name| Queues::of(&world, client.clone(), name));
    live.lose_places(&world);
    *world.backend.units.lock().unwrap() = S / 5;
    dropped.requests.clear();
    world.clock.advance(15 * S);
    assert_eq!((live.length(), dropped.length()), (REQUESTS.into(), 0));
    let Stats { late_renewals, renewals, .. } = client.stats();
    assert!(
        !kept.is_lost() && late_renewals == 0 && renewals >= 14,
        "{late_renewals} of {renewals} are late"
    );
    // The requests are dropped below, and the clock stands still.
    *world.backend.units.lock().unwrap() = Duration::ZERO;
}

/// Requests of a call that were not answered are repeated, and the other requests are done. All of them are carried out, and some
/// of the replies are lost.
#[test]
fn only_a_calls_unanswered_requests_are_repeated() {
    const HALF: usize = AT_ONCE as usize / 2;
    let world = World::new();
    let mut queues = Queues::of(&world, world.client(), "queue");
    queues.lose_places(&world);
    world.backend.leave_out_answers(HALF);
    world.clock.advance(3 * S);
    world.backend.leave_out_answers(0);
    world.clock.advance(2 * S);
    assert_eq!((queues.length(), queues.client.waiting().len()), (REQUESTS.into(), REQUESTS as usize));
    assert_eq!(queues.client.stats().places_lost, 0, "each is back at its ticket");
    world.backend.leave_out_answers(HALF);
    queues.requests.clear();
    world.clock.advance(Duration::ZERO);
    let left = queues.client.waiting().len();
    assert_eq!((queues.length(), left), (0, 0));
    world.backend.leave_out_answers(0);
    world.clock.advance(S);
    let calls = world.backend.calls("withdraw");
    world.clock.advance(30 * S);
    assert_eq!(world.backend.calls("withdraw"), calls, "all are settled");
}

/// A hold that is granted and ends while the watchdog waits is reported in time. The second thread sleeps until the end of the
/// first hold that it has seen, and the new hold ends earlier.
#[test]
fn a_loss_is_reported_while_the_watchdog_waits() {
    let world = World::new();
    let client = world.client();
    let _kept = client.fair_lock("kept").unwrap().lock().unwrap();
    world.faults().delay_next(Operation::Renew, 1, 8 * S);
    world.clock.advance(12 * S); // the renewal is under way, for six seconds more
    let lock = client.fair_lock("short").unwrap().fixed_lease(S);
    for _ in 0..2 {
        let guard = lock.owned_by(&client.new_owner()).unwrap().lock().unwrap();
        world.clock.advance(S);
        assert!(guard.lost().try_recv().is_ok());
    }
}
