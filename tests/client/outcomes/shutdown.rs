//! The end of a client: no more grants, everything is released or named, and the time is limited.

use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use fairlock::{Client, Error, Lock, MemoryBackend, Operation, OwnedGuard};
use fairlock_tests::Bound;

use crate::support::World;

const LIMIT: Duration = Duration::from_secs(10);

fn locks(client: &Client, n: usize) -> Vec<Lock> {
    (0..n).map(|number| client.fair_lock(&format!("lock:{number}")).unwrap()).collect()
}

fn is_clear(lock: &Lock) -> bool {
    let state = lock.inspect().unwrap();
    state.holder().is_none() && state.line.is_empty()
}

#[test]
fn a_waiter_learns_of_the_shutdown_and_gets_no_lock_that_its_own_client_releases() {
    let world = World::new();
    let client = world.client();
    let locks = locks(&client, 50);
    let owner = client.new_owner();
    let guards: Vec<_> = locks.iter().map(|lock| lock.owned_by(&owner).unwrap().lock().unwrap()).collect();
    let request = locks[1].owned_by(&client.new_owner()).unwrap().request().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks[0].lock().map(drop));
        world.clock.wait_for_waiters(1);
        client.shutdown().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Shutdown { .. })));
    });
    assert!(matches!(request.wait(), Err(Error::Shutdown { .. })));
    assert!(guards.iter().all(|guard| guard.is_lost()));
    assert_eq!(client.stats().granted_by_wake_up, 0);
    let other = world.client();
    assert!(locks.iter().all(|lock| is_clear(&other.fair_lock(lock.name()).unwrap())));
}

#[test]
fn messages_left_by_earlier_calls_are_sent() {
    const EACH: usize = 40;
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let locks = locks(&client, 2 * EACH);
    let guards: Vec<_> = locks[..EACH].iter().map(|lock| lock.lock().unwrap()).collect();
    let theirs: Vec<_> = locks[EACH..].iter().map(|lock| other.fair_lock(lock.name()).unwrap()).collect();
    let held: Vec<_> = theirs.iter().map(|lock| lock.lock().unwrap()).collect();
    let requests: Vec<_> = locks[EACH..].iter().map(|lock| lock.request().unwrap()).collect();
    world.faults().cut_off(client.id());
    drop((guards, requests));
    // The clock stands still, so failed attempts are not repeated before the shutdown.
    world.faults().bring_back(client.id());
    client.shutdown().unwrap();
    for lock in &locks[..EACH] {
        assert!(is_clear(&other.fair_lock(lock.name()).unwrap()), "{} is still held", lock.name());
    }
    for lock in &theirs {
        assert!(lock.inspect().unwrap().line.is_empty(), "a place is left in the line of {}", lock.name());
    }
    drop(held);
}

/// Shuts the client down. Returns the time by the manual clock, and the result.
fn shut_down(world: &World, client: &Client) -> (Duration, fairlock::Result<()>) {
    let (came, is_there) = mpsc::channel();
    thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let _here = world.clock.attend_here();
            came.send(()).unwrap();
            let begun = world.clock.now();
            let result = client.shutdown();
            (world.clock.now() - begun, result)
        });
        is_there.recv().unwrap(); // from here on the clock waits for it
        while !ended.is_finished() {
            world.clock.advance(Duration::from_millis(50));
            thread::yield_now();
        }
        ended.join().unwrap()
    })
}

#[test]
fn a_slow_server_does_not_cost_its_delay_for_each_hold() {
    let world = World::new();
    let client = world.client();
    let guards: Vec<_> = locks(&client, 40).iter().map(|lock| lock.lock().unwrap()).collect();
    world.faults().delay_next(Operation::Release, 40, Duration::from_millis(200));
    let (took, result) = shut_down(&world, &client);
    result.unwrap();
    assert!(took <= Duration::from_secs(1), "{took:?}");
    drop(guards);
}

#[test]
fn what_could_not_be_settled_in_time_is_named() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let theirs = other.fair_lock("theirs").unwrap().lock().unwrap();
    let guards: Vec<_> = locks(&client, 30).iter().map(|lock| lock.lock().unwrap()).collect();
    let request = client.fair_lock("theirs").unwrap().request().unwrap();
    world.faults().cut_off(client.id());
    let (took, result) = shut_down(&world, &client);
    let error = result.unwrap_err();
    let Error::Unsettled { count: 31, lock, .. } = &error else { panic!("{error:?}") };
    assert!(error.to_string().contains("31 hold(s) or place(s)"), "{error}");
    assert_eq!(error.lock_name(), Some(lock));
    assert!(took <= LIMIT, "{took:?}");
    drop((guards, request, theirs));
}

#[test]
fn a_server_that_comes_back_in_time_gets_every_message() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let locks = locks(&client, 30);
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    world.faults().fail_next(Operation::Release, 100);
    let (took, result) = shut_down(&world, &client);
    result.unwrap();
    assert!(took <= LIMIT, "{took:?}");
    assert!(locks.iter().all(|lock| is_clear(&other.fair_lock(lock.name()).unwrap())));
    drop(guards);
}

#[test]
fn a_caller_that_waits_for_an_earlier_claim_learns_of_the_shutdown_at_once() {
    let world = World::new();
    let client = world.client();
    let (lock, owner) = (client.fair_lock("left").unwrap(), client.new_owner());
    let guard = lock.owned_by(&owner).unwrap().lock().unwrap();
    world.faults().cut_off(client.id());
    drop(guard);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.owned_by(&owner).unwrap().lock().map(drop));
        world.clock.wait_for_waiters(1);
        let ending = scope.spawn(|| client.shutdown());
        // The clock stands still.
        assert!(matches!(waiter.join().unwrap(), Err(Error::Shutdown { .. })));
        while !ending.is_finished() {
            world.clock.advance(Duration::from_millis(50));
            thread::yield_now();
        }
        assert!(matches!(ending.join().unwrap(), Err(Error::Unsettled { count: 1, .. })));
    });
}

/// A request that may arrive before or after its withdrawal: the withdrawal waits for it.
#[test]
fn a_request_in_flight_is_withdrawn_after_it_has_arrived() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let lock = client.fair_lock("under way").unwrap();
    world.faults().delay_next(Operation::Acquire, 1, Duration::from_secs(1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        world.clock.wait_for_waiters(1);
        let (_, result) = shut_down(&world, &client);
        result.unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Shutdown { .. })));
    });
    assert!(is_clear(&other.fair_lock("under way").unwrap()));
}

#[test]
fn a_callback_that_waits_for_the_callers_mutex_does_not_block_the_shutdown_for_ever() {
    let limit = Duration::from_millis(500);
    let client = Client::builder(MemoryBackend::new()).outage_limit(limit).build().unwrap();
    let mutex = Arc::new(Mutex::new(()));
    let wanted = Arc::clone(&mutex);
    client.on_lost(move |_| drop(wanted.lock()));
    let guard = client.fair_lock("callback").unwrap().lock().unwrap();
    let (ended, is_over) = fairlock::crossbeam_channel::bounded(1);
    let mine = mutex.lock().unwrap();
    let ending = thread::spawn({
        let client = client.clone();
        move || ended.send(client.shutdown()).unwrap()
    });
    let result = is_over.recv_timeout(20 * limit).expect("the shutdown ends although the mutex is held");
    result.unwrap();
    drop(mine);
    ending.join().unwrap();
    assert!(guard.is_lost());
}

#[test]
fn a_bump_in_flight_ends_with_the_client_and_leaves_nothing() {
    let world = World::new();
    let (client, other) = (world.client(), world.client());
    let (lock, owner) = (client.fair_lock("bump").unwrap(), client.new_owner());
    let mut guard = lock.owned_by(&owner).unwrap().lock().unwrap();
    world.faults().delay_next(Operation::Release, 1, Duration::from_secs(1));
    thread::scope(|scope| {
        let bumped = scope.spawn(|| guard.bump());
        world.clock.wait_for_waiters(1); // it waits for the answer to its release
        let (_, result) = shut_down(&world, &client);
        result.unwrap();
        assert!(matches!(bumped.join().unwrap(), Err(Error::Shutdown { .. })));
    });
    assert!(guard.is_lost());
    assert!(is_clear(&other.fair_lock("bump").unwrap()));
}

/// A guard that is dropped while its client is shut down is given back by one of the two, and a bump may make a new claim after
/// the shutdown has listed them.
#[test]
fn what_ends_in_the_moment_of_a_shutdown_is_given_back_all_the_same() {
    let _bound = Bound::here(Duration::from_secs(120));
    let (bumps, drops) = (|mut guard: OwnedGuard| drop(guard.bump()), drop::<OwnedGuard>);
    let ends: [fn(OwnedGuard); 2] = [bumps, drops];
    for round in 0..1000 {
        let store = MemoryBackend::new();
        let (client, other) = (Client::new(store.clone()).unwrap(), Client::new(store).unwrap());
        let (lock, theirs) = (client.fair_lock("ends").unwrap(), other.fair_lock("ends").unwrap());
        let guard = lock.owned_by(&client.new_owner()).unwrap().lock().unwrap();
        let mut next = theirs.request().unwrap();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                ends[round % 2](guard);
            });
            both.wait();
            client.shutdown().unwrap();
            let granted = next.wait_for(Duration::from_secs(5)).unwrap().guard();
            assert!(granted.is_some(), "in round {round}: {:?}", theirs.inspect().unwrap());
        });
        assert!(is_clear(&theirs), "in round {round}");
    }
}
