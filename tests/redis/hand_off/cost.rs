//! The cost of waiting, handing over and bumping: scripts, and the commands in them, as the server counts them.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

use crate::support::{
    LONG, SOON, all_calls, client, granted, join, lock, request, scripts_run, take, until_in_line,
};

/// Heartbeats come every third of a place's life. Those due within a ninth of it are sent together.
#[test]
fn waiting_costs_one_script_a_heartbeat_however_many_wait() {
    let _alone = Alone::here();
    for waiters in [1, 200] {
        let server = RedisServer::start();
        let (holder, ours) =
            (client(&server.url(), LONG), client(&server.url(), Duration::from_millis(1800)));
        let guard = take(&holder.fair_lock("crowd").unwrap());
        let started = Instant::now();
        let requests: Vec<_> = (0..waiters).map(|_| request(&ours, "crowd")).collect();
        let groups = 1 + started.elapsed().as_millis() / 200;
        assert_eq!(server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len(), 2);
        let (started, before) = (Instant::now(), scripts_run(&server));
        thread::sleep(Duration::from_millis(3100)); // five heartbeats
        let (scripts, beats) = (scripts_run(&server) - before, started.elapsed().as_millis() / 600);
        assert!(scripts >= 3, "only {scripts} scripts in {beats} heartbeats");
        let most = groups * (beats + 1) + 1; // the first one had to be loaded
        assert!(u128::from(scripts) <= most, "{scripts} scripts in {beats} heartbeats of {groups} groups");
        let listens = |line: &String| line.contains(" sub=1 ");
        assert_eq!(server.clients().iter().filter(|line| listens(line)).count(), 2);
        drop(requests);
        guard.unlock().unwrap();
        eventually(SOON, "all requests have left", || {
            server.query::<i64>(&["EXISTS", "crowd", "fairlock_line:{crowd}"]) == 0
        });
        drop((holder, ours));
        assert_no_residue(&server, &[]);
    }
}

#[test]
fn a_contended_turn_costs_two_scripts_and_nothing_is_found_by_polling() {
    let _alone = Alone::here();
    const TURNS: u64 = 50;
    let server = RedisServer::start();
    let clients: Vec<_> = (0..4).map(|_| client(&server.url(), LONG)).collect();
    take(&clients[0].fair_lock("turns").unwrap()).unlock().unwrap(); // loads the scripts
    let before = scripts_run(&server);
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for number in 0..8 {
            let (lock, start) = (clients[number % 4].fair_lock("turns").unwrap(), &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..TURNS {
                    take(&lock).unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(scripts_run(&server) - before, 2 * 8 * TURNS);
    let by_wake_up: u64 = clients.iter().map(|client| client.stats().granted_by_wake_up).sum();
    assert!(by_wake_up > 4 * TURNS, "only {by_wake_up} turns were handed over");
    assert!(clients.iter().all(|client| client.stats().granted_by_polling == 0));
    drop(clients);
    assert_no_residue(&server, &[]);
}

#[test]
fn a_bump_is_two_scripts_and_puts_the_holder_behind_all_waiters() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let (ours, theirs) = (lock(&server, "bump"), client(&server.url(), LONG));
    thread::scope(|scope| {
        let mut guard = take(&ours);
        // The scripts are loaded from here on.
        guard.bump().unwrap();
        let (token, before) = (guard.token(), scripts_run(&server));
        guard.bump().unwrap();
        assert_eq!(scripts_run(&server), before + 2, "a release and a request, also without a waiter");
        assert!(guard.token() > token);
        let token = guard.token();

        let (second, third) = (request(&theirs, "bump"), request(&theirs, "bump"));
        let before = scripts_run(&server);
        let others = scope.spawn(|| {
            let (second, third) = (second, third);
            let guard = granted(second, SOON);
            until_in_line(&server, "bump", 2);
            let second = guard.token();
            guard.unlock().unwrap();
            let guard = granted(third, SOON);
            until_in_line(&server, "bump", 1);
            let third = guard.token();
            guard.unlock().unwrap();
            [second, third]
        });
        guard.bump().unwrap();
        let [second, third] = join(others);
        assert!(token < second && second < third && third < guard.token());
        // The two of the bump, and the two releases.
        assert_eq!(scripts_run(&server), before + 4);
        guard.unlock().unwrap();
    });
    drop(theirs);
    assert_no_residue(&server, &[]);
}

/// Counts the server's commands in a call that joins the line, and in a release that hands the lock on.
#[test]
fn joining_and_handing_over_take_the_same_commands_whether_ten_wait_or_a_thousand() {
    let _alone = Alone::here();
    let cost = |waiters: usize| {
        let server = RedisServer::start();
        let ours = client(&server.url(), LONG);
        let guard = take(&ours.fair_lock("flat").unwrap());
        let mut requests: Vec<_> = (0..waiters).map(|_| request(&ours, "flat")).collect();
        let during = |what: &mut dyn FnMut()| -> BTreeMap<String, u64> {
            let before = all_calls(&server);
            what();
            let mut calls = all_calls(&server);
            calls.iter_mut().for_each(|(name, n)| *n -= before.get(name).unwrap_or(&0));
            // Pings of the subscription come at any time.
            calls.retain(|name, n| *n > 0 && name != "ping");
            calls
        };
        let joining = during(&mut || requests.push(request(&ours, "flat")));
        let mut first = Some((guard, requests.remove(0)));
        let handing_over = during(&mut || {
            let (guard, next) = first.take().unwrap();
            guard.unlock().unwrap();
            drop(granted(next, SOON).unlock());
        });
        assert_eq!((joining["evalsha"], handing_over["publish"]), (1, 2));
        drop(requests);
        eventually(SOON, "all requests have left", || server.query::<i64>(&["EXISTS", "flat"]) == 0);
        drop(ours);
        assert_no_residue(&server, &[]);
        (joining, handing_over)
    };
    assert_eq!(cost(10), cost(1000));
}
