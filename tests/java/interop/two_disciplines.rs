//! Discipline `HandOff` beside Redisson's locks of the same name: no order, but exclusion, wake-ups and a warning.

use std::time::Duration;

use fairlock::{Client, Discipline, LockKind, RedisBackend};
use fairlock_tests::eventually;
use fairlock_tests::history::now_ns;
use fairlock_tests::locks::lock_of;
use fairlock_tests::log_lines::{keep_log_lines, log_lines};

use crate::world::{LONG, SLACK, SOON, World, since, wait_for_turn, word};

/// A client without heartbeats during the test.
fn hand_off(world: &World) -> Client {
    let backend =
        RedisBackend::builder(&world.server.url()).discipline(Discipline::HandOff).connect().unwrap();
    Client::builder(backend).lease(LONG).place_ttl(2 * LONG).build().unwrap()
}

fn until_ours_wait(world: &World, name: &str, n: u64) {
    let queue = format!("fairlock_queue:{{{name}}}");
    eventually(SOON, "ours are in the queue", || world.server.query::<u64>(&["ZCARD", &queue]) == n);
}

/// Neither a message nor a heartbeat nor the end of a lease tells it.
#[test]
fn our_first_in_queue_finds_javas_release_within_its_look() {
    let world = World::alone();
    let client = hand_off(&world);
    for kind in crate::world::KINDS {
        let name = format!("look-{}", word(kind));
        world.java.expect("j", &format!("lock {} {name}", word(kind)), "ok");
        let turn = wait_for_turn(&lock_of(&client, LockKind::Fair, &name));
        until_ours_wait(&world, &name, 1);
        let released = world.java.expect("j", &format!("unlock {} {name}", word(kind)), "ok").began;
        let waited = since(released, turn.soon());
        assert!(waited < Duration::from_millis(500) + 2 * SLACK, "{name}: {waited:?}");
    }
}

#[test]
fn our_release_wakes_java_that_waits_for_a_plain_lock() {
    let world = World::alone();
    let guard = lock_of(&hand_off(&world), LockKind::Fair, "plain").lock().unwrap();
    let java = world.java.tell("j", "lock plain plain");
    world.until_waiting(LockKind::Plain, "plain", 1);
    world.java.until_asleep("j");
    let released = now_ns();
    guard.unlock().unwrap();
    let waited = since(released, java.expect("ok").ended);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    world.java.expect("j", "unlock plain plain", "ok");
    world.until_waiting(LockKind::Plain, "plain", 0);
}

/// And ours get the lock when Java's queue is empty.
#[test]
fn a_fair_lock_that_java_waits_for_as_well_is_warned_of_once() {
    keep_log_lines(log::LevelFilter::Warn);
    let world = World::alone();
    let client = hand_off(&world);
    let lock = lock_of(&client, LockKind::Fair, "both");
    world.java.expect("j1", "lock fair both", "ok");
    let behind = world.java.tell("j2", "lock fair both");
    world.until_waiting(LockKind::Fair, "both", 1);
    world.java.until_asleep("j2");
    let turns = [(); 3].map(|()| wait_for_turn(&lock));
    until_ours_wait(&world, "both", 3);
    let warned = || log_lines("lock `both`: clients wait for it in Redisson's queue").len();
    eventually(SOON, "the warning", || warned() == 1);
    assert!(lock.try_lock().unwrap().guard().is_none());
    world.java.expect("j1", "unlock fair both", "ok");
    behind.expect("ok");
    assert!(turns.iter().all(|turn| turn.is_quiet()));
    assert!(lock.try_lock().unwrap().guard().is_none());
    world.java.expect("j2", "unlock fair both", "ok");
    turns.iter().for_each(|turn| _ = turn.soon());
    assert_eq!(warned(), 1);
    world.assert_no_queue("both");
}
