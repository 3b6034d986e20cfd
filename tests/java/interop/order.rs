//! One queue for both sides, and each side woken by the other's unlock.

use std::time::Duration;

use fairlock::Client;
use fairlock::admin::LockKind;
use fairlock_tests::history::{check_overlap, grants, read};
use fairlock_tests::locks::lock_of;
use fairlock_tests::{WorkDir, eventually};

use crate::world::{World, gaps, in_thread, since, wait_for_turn, work};

/// The longest time from a release to the next grant. Leases are 30 s and heartbeats 10 s, so polling can't explain
/// it.
const WOKEN: Duration = Duration::from_secs(2);

/// The order of the requests: each side follows each.
const LINES: [[&str; 8]; 2] =
    [["j1", "r1", "j2", "r2", "j3", "r3", "j4", "r4"], ["r1", "r2", "j1", "j2", "j3", "r3", "r4", "j4"]];

/// Puts them in the queue behind a holder, releases the lock, and returns the gap before each grant.
fn hand_over(world: &World, clients: &[Client; 2], name: &str, queue: [&'static str; 8]) -> Vec<Duration> {
    let dir = WorkDir::new();
    let history = dir.file("history");
    let recorder = fairlock_tests::history::Recorder::open(&history).unwrap();
    let lock = lock_of(&clients[0], LockKind::Fair, name);
    let guard = lock.lock().unwrap();
    recorder.granted("first", name, guard.token().get());
    let (mut javas, mut rusts) = (Vec::new(), Vec::new());
    for (number, who) in queue.into_iter().enumerate() {
        if who.starts_with('j') {
            javas.push(world.java.tell(who, &format!("work fair {name} 0 1 {}", history.display())));
        } else {
            let lock = lock_of(&clients[number % 2], LockKind::Fair, name);
            let history = history.clone();
            rusts.push(in_thread(move || work(&lock, who, Duration::ZERO, 1, &history)));
        }
        world.until_waiting(LockKind::Fair, name, number + 1);
    }
    // A waiter in the queue may not be asleep yet: it subscribes and checks once more.
    eventually("all of them are subscribed", || {
        let all = format!("redisson_lock__channel:{{{name}}}:*");
        world.server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", &all]).len() == queue.len()
    });
    queue.iter().filter(|who| who.starts_with('j')).for_each(|who| world.java.until_asleep(who));
    recorder.release("first", name);
    guard.unlock().unwrap();
    javas.iter().for_each(|java| drop(java.expect("1")));
    rusts.iter().for_each(|rust| assert_eq!(rust.soon(), 1));
    let events = read(&history).unwrap();
    check_overlap(&events).unwrap();
    let served: Vec<String> = grants(&events, name).into_iter().skip(1).map(|hold| hold.who).collect();
    assert_eq!(served, queue);
    gaps(&events)
}

/// Eight waiters of both sides get the fair lock in the order in which they asked.
#[test]
fn waiters_of_both_sides_get_the_fair_lock_in_order() {
    let world = World::alone();
    let clients = [world.client_that_hears(), world.client_that_hears()];
    // A JVM does everything slowly the first time.
    for _ in 0..10 {
        LINES.iter().for_each(|queue| drop(hand_over(&world, &clients, "warm", *queue)));
    }
    for queue in LINES {
        let gaps = hand_over(&world, &clients, "queue", queue);
        println!("gaps of {queue:?}: {gaps:?}");
        assert_eq!(gaps.len(), 8);
        assert!(gaps.iter().all(|gap| *gap < WOKEN), "{gaps:?}");
    }
    for client in &clients {
        assert_eq!(client.stats().granted_by_polling, 0);
        assert_eq!(client.stats().places_lost, 0);
    }
    world.assert_no_queue("queue");
}

/// A plain lock has no order, so only one waits at a time: ours for Java, then Java for ours.
#[test]
fn each_side_is_woken_by_the_others_unlock_of_a_plain_lock() {
    let world = World::alone();
    let client = world.client_that_hears();
    let lock = lock_of(&client, LockKind::Plain, "plain");
    let mut gaps = Vec::new();
    for _ in 0..14 {
        world.java.expect("j", "lock plain plain", "ok");
        let turn = wait_for_turn(&lock);
        world.until_waiting(LockKind::Plain, "plain", 1);
        let released = world.java.expect("j", "unlock plain plain", "ok").began;
        gaps.push(since(released, turn.soon()));

        // It may still be subscribed from the previous wait.
        world.until_waiting(LockKind::Plain, "plain", 0);
        let guard = lock.lock().unwrap();
        let turn = world.java.tell("j", "lock plain plain");
        world.until_waiting(LockKind::Plain, "plain", 1);
        let released = fairlock_tests::history::now_ns();
        guard.unlock().unwrap();
        gaps.push(since(released, turn.expect("ok").ended));
        world.java.expect("j", "unlock plain plain", "ok");
        world.until_waiting(LockKind::Plain, "plain", 0);
    }
    // Without the first ten of each side, in which the JVM warms up.
    let measured = &gaps[20..];
    println!("gaps: {measured:?}");
    assert!(measured.iter().all(|gap| *gap < WOKEN), "{measured:?}");
    assert_eq!(client.stats().granted_by_polling, 0);
}
