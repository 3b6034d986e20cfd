//! Servers that crash, are restarted, or lose one process.

use std::sync::mpsc::channel;
use std::thread;

use fairlock::{Error, PostgresBackend, TryLock};
use fairlock_tests::connecting::connects_after;
use fairlock_tests::errors::assert_unavailable;
use fairlock_tests::{Alone, PostgresServer, Worker, eventually};
use futures::executor::block_on;
use futures::future::join_all;

use super::support::{
    ANSWER, OUTAGE, SLACK, SOON, client, granted, ms, patient, request, take, until_in_queue,
    until_nothing_left, within,
};

/// A queue goes on over restarts and killed processes of the server.
#[test]
fn a_queue_goes_on_over_restarts_and_killed_processes() {
    let _alone = Alone::here();
    let server = PostgresServer::builder().start();
    let clients = [(); 3].map(|()| patient(&server.url()));
    let (tell, turns) = channel();
    thread::scope(|scope| {
        let mut guard = granted(request(&clients[0], "line"), SOON);
        for number in 1..=6_u8 {
            let (request, tell) = (request(&clients[usize::from(number) % 3], "line"), tell.clone());
            until_in_queue(&clients[0], "line", number.into());
            scope.spawn(move || tell.send(granted(request, SOON * 4)));
        }
        for number in 0..6 {
            if number % 2 == 0 {
                server.restart();
            } else {
                // As the kernel does when memory is short. The server ends all sessions, and starts again.
                let mut sessions = Vec::new();
                eventually("somebody is connected", || {
                    sessions = server.sessions();
                    !sessions.is_empty()
                });
                server.kill_session(sessions[number % sessions.len()]);
            }
            assert!(turns.try_recv().is_err(), "the lock is held");
            let token = guard.token();
            guard.unlock().unwrap();
            guard = turns.recv_timeout(SOON).unwrap();
            assert!(guard.token() > token);
        }
        server.until_up();
        guard.unlock().unwrap();
    });
    assert_eq!(clients.iter().map(|client| client.stats().places_lost).sum::<u64>(), 0);
    until_nothing_left(&server);
}

/// Its connections were refused, so nothing was sent: of each try nothing is left, when it ends and when the server is back.
#[test]
fn tries_while_the_server_is_away_leave_nothing_to_tell_it() {
    const TRIES: usize = 500;
    let _alone = Alone::here();
    let server = PostgresServer::builder().set("log_statement", "all").start();
    let client = client(&server.url());
    let lock = client.fair_lock("away").unwrap();
    take(&lock).unlock().unwrap();
    let of_thread = || lock.owned_by(&client.new_owner()).unwrap().try_lock().map(drop);
    let tries = || {
        for _ in 0..TRIES {
            assert_unavailable(of_thread(), &["away"]);
        }
        // At once: the watchdog makes their second attempts, after a pause.
        let tasks = (0..TRIES).map(|_| lock.to_async().try_lock());
        for tried in block_on(join_all(tasks)) {
            assert_unavailable(tried.map(drop), &["away"]);
        }
        // Those that ask for the same lock at the same time share a step, which has no connection.
        thread::scope(|scope| {
            (0..8).for_each(|_| {
                _ = scope.spawn(|| (0..50).for_each(|_| assert_unavailable(of_thread(), &["away"])))
            });
        });
    };
    server.kill();
    assert_unavailable(of_thread(), &["away"]); // the open connection breaks, and that attempt may have been sent
    tries();
    assert!(client.waiting().is_empty());
    let before = server.log().lines().count();
    server.restart();
    server.until_up();
    eventually("the same lock works again", || {
        lock.try_lock().is_ok_and(|tried| tried.granted().expect("it is free").unlock().is_ok())
    });
    client.shutdown().unwrap(); // tells what else is left
    let steps = server.log().lines().skip(before).filter(|line| line.contains("for update")).count();
    assert!(steps < 20, "{steps} steps");
    until_nothing_left(&server);
}

/// Two processes: what one holds the other waits for, before the restart and after it.
#[test]
fn every_kind_of_hold_and_of_wait_goes_on_over_a_restart() {
    let _alone = Alone::here();
    let server = PostgresServer::builder().start();
    let ours = patient(&server.url());
    let mut theirs = Worker::start(env!("CARGO_BIN_EXE_lock_worker"), &["kinds", &server.url(), "60000"]);
    theirs.go();
    theirs.expect("held", SOON);
    let (fair, table) = (ours.fair_lock("fair").unwrap(), ours.rw_lock("table").unwrap());
    let pool = ours.semaphore("pool", 2).unwrap();
    thread::scope(|scope| {
        let waits = [
            scope.spawn(|| fair.lock().unwrap().unlock().unwrap()),
            scope.spawn(|| table.write().unwrap().unlock().unwrap()),
            scope.spawn(|| pool.acquire_many(2).unwrap().unlock().unwrap()),
            scope.spawn(|| ours.lock_all(&["b", "a"]).unwrap().unlock().unwrap()),
        ];
        eventually("all wait", || ours.stats().waiting.len() >= waits.len());
        server.restart();
        take(&ours.fair_lock("free").unwrap()).unlock().unwrap();
        assert!(matches!(fair.owned_by(&ours.new_owner()).unwrap().try_lock().unwrap(), TryLock::Busy(_)));
        assert!(matches!(table.try_write().unwrap(), TryLock::Busy(_)));
        assert!(matches!(pool.try_acquire_many(2).unwrap(), TryLock::Busy(_)));
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        theirs.go();
        theirs.expect("unlocked", SOON);
        eventually("all have their turn", || waits.iter().all(thread::ScopedJoinHandle::is_finished));
    });
    until_nothing_left(&server);
}

#[test]
fn an_outage_is_an_error_in_bounded_time_and_its_end_is_noticed() {
    let _alone = Alone::here();
    let server = PostgresServer::builder().start();
    let client = client(&server.url());
    let (lock, held) = (client.fair_lock("orders").unwrap(), take(&client.fair_lock("held").unwrap()));
    server.kill();
    let bound = OUTAGE + ANSWER * 4 + SLACK;
    let parts = ["(lock `orders`)", &server.address(), "refused"];
    assert_unavailable(within(bound, || lock.lock()), &parts);
    assert_unavailable(within(bound, || lock.owned_by(&client.new_owner()).unwrap().try_lock()), &parts);
    assert_unavailable(within(bound, || lock.admin().inspect()), &parts);
    assert_unavailable(within(bound, || held.unlock()), &["(lock `held`)", &server.address(), "refused"]);
    server.restart();
    eventually("the same lock works again", || match lock.try_lock() {
        Ok(tried) => tried.granted().is_some_and(|guard| guard.unlock().is_ok()),
        Err(_) => false,
    });
    take(&client.fair_lock("held").unwrap()).unlock().unwrap();
    until_nothing_left(&server);
}

#[test]
fn a_server_that_is_away_or_full_is_waited_for_at_connect() {
    let _alone = Alone::here();
    let server = PostgresServer::builder();
    let server = server.set("max_connections", "4").set("superuser_reserved_connections", "0").start();
    let url = server.url();
    let connect = |url: &str, time| PostgresBackend::builder(url).connect_within(time).connect().map(drop);
    server.kill();
    connects_after(|| connect(&url, SOON), || server.restart());
    let others: Vec<_> = std::iter::from_fn(|| server.try_con("postgres").ok()).collect();
    assert_unavailable(within(SOON, || connect(&url, ms(200))), &[&server.address(), "53300"]);
    connects_after(|| connect(&url, SOON), || drop(others));
    for url in [server.url_of("nowhere"), url.replace('/', "//")] {
        let wrong = within(ms(2500), || connect(&url, SOON)).unwrap_err();
        assert!(matches!(wrong, Error::InvalidConfig { .. }), "{wrong}");
    }
}
