//! Storms of processes: workers take turns on one lock of a real server without a pause, and are killed, stopped, starved or cut off by
//! chance. Each turn is counted, and each history is judged.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, PostgresBackend, RedisBackend};
use fairlock_tests::dice::Dice;
use fairlock_tests::oracle::count;
use fairlock_tests::turns::{Habits, SLACK, Store, Turns};
use fairlock_tests::{Alone, PostgresServer, RedisServer, assert_no_residue, eventually, signals};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
/// The lease and the place TTL of workers that are killed or stopped: a death costs one of them.
const TIME: Duration = Duration::from_millis(1500);
const ALL_WELL: &str = " failed 0 unknown 0 lost 0 polled 0 places_lost 0";

/// Waits until the row is that of an unused lock, which stays for a day. Dead waiters keep their tickets for two minutes.
fn assert_unused(server: &PostgresServer) {
    let in_use = "select 1 from fairlock.lock where h_ends > fairlock.micros() or dead_at > fairlock.micros() + 86520000000";
    let is_unused = || server.con().query(in_use, &[]).unwrap().is_empty();
    eventually("no hold is left", is_unused);
}

/// All take their turns in order, without polling, and each turn counts.
fn take_turns<S: Store>(run: &Turns<'_, S>, workers: usize, turns: usize) {
    let workers = run.start(workers);
    for worker in &workers {
        worker.expect(&format!("granted {turns}{ALL_WELL}"), Duration::from_secs(120));
    }
    let all = workers.len() * turns;
    let events = run.judged(Duration::ZERO, Duration::ZERO);
    assert_eq!((run.store.counter(), count(&events, "turns")), (all, all));
    let waited = run.in_order(&events);
    assert!(waited > all * 6 / 10, "{waited}");
}

/// Sixteen processes take a hundred exclusive turns each, in order and without polling.
#[test]
fn sixteen_processes_take_turns_in_order_without_polling() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    take_turns(&Turns::new(PROGRAM, &server, Habits::new("hand_off", 100)), 16, 100);
    assert_no_residue(&server, &["test:counter"]);
}

/// Eight processes take exclusive turns on PostgreSQL, in order and without polling.
#[test]
fn eight_processes_take_turns_in_order_without_polling() {
    let _alone = Alone::here();
    let server = PostgresServer::start();
    take_turns(&Turns::new(PROGRAM, &server, Habits::new("postgres", 60)), 8, 60);
    assert_unused(&server);
}

/// Some of the workers are killed by chance, and then the rest: all was right, and the lock is free afterwards. No live
/// waiter is passed.
fn kill_some<S: Store>(run: &Turns<'_, S>, workers: usize, deaths: usize, client: &Client) {
    let (mut workers, mut dice) = (run.start(workers), Dice::of_this_test());
    for _ in 0..deaths {
        run.until_more(3 + dice.roll(20));
        run.kill(workers.swap_remove(dice.index(workers.len())));
    }
    run.until_more(40);
    workers.into_iter().for_each(|worker| run.kill(worker));
    run.in_order(&run.judged(TIME, Duration::ZERO));
    let lock = client.fair_lock("turns").unwrap();
    lock.try_lock_for(TIME * 2 + SLACK).unwrap().granted().expect("in time").unlock().unwrap();
}

/// Randomly killed workers cost one place or lease each, and no order.
#[test]
fn randomly_killed_workers_cost_one_place_or_lease_each() {
    let _alone = Alone::here();
    let server = PostgresServer::start();
    let client = Client::new(PostgresBackend::connect(&server.url()).unwrap()).unwrap();
    let run = Turns::new(PROGRAM, &server, Habits::endless("postgres", TIME));
    kill_some(&run, 10, 7, &client);
    assert_unused(&server);
    let server = RedisServer::start();
    let client = Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    let run = Turns::new(PROGRAM, &server, Habits::endless("hand_off", TIME));
    kill_some(&run, 14, 10, &client);
    assert_no_residue(&server, &["test:counter", "fairlock_queue:{turns}", "fairlock_record:{turns}"]);
}

/// Processes that are stopped past their leases, and starve between. No order: the places of processes
/// that stand still end and come back.
fn stop_some<S: Store>(run: &Turns<'_, S>) {
    let (workers, mut dice) = (run.start(8), Dice::of_this_test());
    for _ in 0..4 {
        run.until_more(3 + dice.roll(20));
        let stopped = workers[dice.index(workers.len())].child();
        signals::stop(stopped);
        thread::sleep(TIME * 4 / 3); // the fault itself: longer than its lease and its place
        let starving = Instant::now();
        while starving.elapsed() < TIME {
            // The same: it runs a tenth of the time.
            signals::cont(stopped);
            thread::sleep(Duration::from_millis(10));
            signals::stop(stopped);
            thread::sleep(Duration::from_millis(90));
        }
        signals::cont(stopped);
    }
    run.until_more(20);
    workers.into_iter().for_each(|worker| run.kill(worker));
    run.judged(TIME, TIME);
}

#[test]
fn stopped_workers_never_hold_beside_others() {
    let _alone = Alone::here();
    let (postgres, redis) = (PostgresServer::start(), RedisServer::start());
    thread::scope(|scope| {
        scope.spawn(|| stop_some(&Turns::new(PROGRAM, &postgres, Habits::endless("postgres", TIME))));
        stop_some(&Turns::new(PROGRAM, &redis, Habits::endless("hand_off", TIME)));
    });
    assert_unused(&postgres);
}
