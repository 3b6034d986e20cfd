//! Four workers of each side at full speed on one lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock::Client;
use fairlock::admin::LockKind;
use fairlock_tests::WorkDir;
use fairlock_tests::history::{Event, What, check_overlap, check_token_order, read};
use fairlock_tests::locks::lock_of;

use crate::java::is_old;
use crate::world::{FOUND_OUT, SOON, World, gaps, in_thread, word, work_while};

/// 60 s, or the value in the environment: tests/java/interop/run gives one version the whole time and the others less.
fn time() -> Duration {
    let seconds = std::env::var("FAIRLOCK_INTEROP_SECONDS").unwrap_or_else(|_| "60".to_owned());
    Duration::from_secs(seconds.parse().expect("seconds"))
}

/// The turns of each worker.
type Turns = BTreeMap<String, u64>;

#[test]
fn four_and_four_workers_at_full_speed_share_the_fair_lock() {
    let turns = full_speed(LockKind::Fair, time());
    // One queue: each worker goes to its end after a turn, so the counts stay close.
    let (least, most) = (turns.values().min().unwrap(), turns.values().max().unwrap());
    assert!(2 * least >= *most, "{turns:?}");
}

#[test]
fn four_and_four_workers_at_full_speed_share_the_plain_lock() {
    // No order is promised; still each worker gets turns.
    full_speed(LockKind::Plain, time() / 6);
}

fn full_speed(kind: LockKind, time: Duration) -> Turns {
    let world = World::alone();
    // A heartbeat may find a grant before its message is read. Only where Java loses wake-ups do ours need heartbeats.
    let client = || if is_old() { world.client() } else { world.client_that_hears() };
    let clients = [client(), client()];
    let (events, turns) = work_together(&world, &clients, kind, time);
    let our_events: Vec<_> = events.iter().filter(|event| event.pid == std::process::id()).cloned().collect();
    check_token_order(&our_events).unwrap();
    // Every release woke the next waiter. Where Java lost its wake-up, our next heartbeat replaced it.
    let longest = gaps(&events).into_iter().max().unwrap();
    assert!(longest < FOUND_OUT, "{longest:?}, {turns:?}");
    for client in &clients {
        let stats = client.stats();
        assert_eq!((stats.lost, stats.places_lost), (0, 0), "{stats:?}");
        // Others may pass a waiter for a plain lock until its own attempt happens to be the first.
        assert!(kind == LockKind::Plain || stats.granted_by_polling == 0, "{stats:?}");
    }
    turns
}

/// What all of them saw: none overlaps another, and each had turns.
fn work_together(
    world: &World,
    clients: &[Client; 2],
    kind: LockKind,
    time: Duration,
) -> (Vec<Event>, Turns) {
    let (name, dir) = (word(kind), WorkDir::new());
    let history = dir.file("history");
    // The subscription queue of 3.16.8 sometimes loses an entry: the request fails after 3 s and is repeated.
    let verb = if is_old() { "work-on" } else { "work" };
    let call = format!("{verb} {name} {name} {} 0 {}", time.as_millis(), history.display());
    let javas = ["j1", "j2", "j3", "j4"].map(|thread| world.java.tell(thread, &call));
    // Ours go on until Java's are done. Redisson before 3.28.0 sometimes loses a wake-up (its issue 5761) and then
    // sleeps until one of our heartbeats wakes it.
    let go_on = Arc::new(AtomicBool::new(true));
    let rusts = [("r1", 0), ("r2", 1), ("r3", 0), ("r4", 1)].map(|(who, client)| {
        let (lock, history) = (lock_of(&clients[client], kind, name), history.clone());
        let go_on = Arc::clone(&go_on);
        in_thread(move || work_while(&lock, who, &history, |_| go_on.load(Ordering::Relaxed)))
    });
    let theirs = javas.iter().map(|java| java.wait(time + 3 * SOON).result.parse::<u64>().unwrap());
    let theirs: u64 = theirs.sum();
    go_on.store(false, Ordering::Relaxed);
    let ours: u64 = rusts.iter().map(|rust| rust.wait(3 * SOON)).sum();

    let events = read(&history).unwrap();
    check_overlap(&events).unwrap();
    let mut turns = Turns::new();
    for event in events.iter().filter(|event| matches!(event.what, What::Granted { .. })) {
        *turns.entry(event.who.clone()).or_insert(0) += 1;
    }
    assert_eq!((turns.len(), turns.values().sum()), (8, ours + theirs), "{turns:?}");
    world.assert_no_queue(name);
    (events, turns)
}
