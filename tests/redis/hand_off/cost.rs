//! The cost of handing over and re-entry: scripts, and the commands in them, as the server counts them.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::support::*;

/// A contended turn costs two scripts, and nothing is found by polling.
#[test]
fn a_contended_turn_costs_two_scripts() {
    const TURNS: u64 = 50;
    let server = CleanServer::start();
    let clients: Vec<_> = (0..4).map(|_| client(&server.url())).collect();
    a_turn(&clients[0], "turns"); // loads the scripts
    let before = scripts_run(&server);
    let (start, began) = (Barrier::new(8), Instant::now());
    thread::scope(|scope| {
        for number in 0..8 {
            let (client, start) = (&clients[number % 4], &start);
            scope.spawn(move || {
                start.wait();
                (0..TURNS).for_each(|_| a_turn(client, "turns"));
            });
        }
    });
    // A hold that lasts for 100 ms, as on a busy machine, is raised to the full lease by one more, up to a tenth earlier.
    let (scripts, raised) = (scripts_run(&server) - before, began.elapsed().as_millis() as u64 / 90);
    assert!(
        (2 * 8 * TURNS..=2 * 8 * TURNS + raised).contains(&scripts),
        "{scripts} scripts, {raised} raised"
    );
    let by_wake_up: u64 = clients.iter().map(|client| client.stats().granted_by_wake_up).sum();
    assert!(by_wake_up > 4 * TURNS, "only {by_wake_up} turns were handed over");
    assert!(clients.iter().all(|client| client.stats().granted_by_polling == 0));
}

/// Joining and handing over take the same commands, whether ten wait or a thousand. Counts the server's commands in a call that
/// joins the queue, and in a release that hands the lock on.
#[test]
fn joining_and_handing_over_cost_the_same_for_any_queue() {
    let cost = |waiters: usize| {
        let server = CleanServer::start();
        let ours = client(&server.url());
        let guard = take(&ours, "flat");
        let mut requests: Vec<_> = (0..waiters).map(|_| request(&ours, "flat")).collect();
        let (_, joining) = calls_in(&server, || requests.push(request(&ours, "flat")));
        let (_, handing_over) = calls_in(&server, || {
            guard.unlock().unwrap();
            served(requests.remove(0));
        });
        assert_eq!((joining["evalsha"], handing_over["publish"]), (1, 2));
        drop(requests);
        eventually("all requests have left", || server.query::<i64>(&["EXISTS", "flat"]) == 0);
        (joining, handing_over)
    };
    assert_eq!(cost(10), cost(1000));
}

/// Re-entry costs no round trip, and is seen after the next renewal.
#[test]
fn re_entry_costs_no_round_trip() {
    let server = CleanServer::start();
    let (ours, theirs) = (client(&server.url()), client(&server.url()));
    a_turn(&ours, "again"); // loads the scripts
    let ours = ours.fair_lock("again").unwrap();
    let outermost = ours.lock().unwrap();
    let count = || theirs.fair_lock("again").unwrap().admin().inspect().unwrap().holder().unwrap().hold_count;
    assert_eq!(count(), 1);
    let before = scripts_run(&server);
    let mut guards = Vec::new();
    for _ in 0..100 {
        guards.push(ours.lock().unwrap());
        ours.try_lock().unwrap().granted().unwrap().unlock().unwrap();
    }
    assert_eq!((ours.hold_count(), scripts_run(&server)), (101, before));
    outermost.renew().unwrap();
    assert_eq!(count(), 101);
    let before = scripts_run(&server);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    assert_eq!(scripts_run(&server), before);
    outermost.unlock().unwrap();
    assert_eq!(scripts_run(&server), before + 1);
}
