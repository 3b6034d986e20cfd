//! Killed processes of either side (SIGKILL). Holders are replaced, and waiters delay others by Redisson's rule only.

use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock_tests::history::now_ns;
use fairlock_tests::{Worker, eventually};

use crate::java::{Java, is_old};
use crate::world::{FOUND_OUT, KINDS, SLACK, World, since, wait_for_turn, word};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock_worker");
/// The lease of a killed holder.
const LEASE: Duration = Duration::from_secs(2);
/// The wait of a killed waiter. Redisson counts it as dead after this wait and the lease that it saw.
const WAIT: Duration = Duration::from_secs(2);

#[test]
fn a_killed_java_holder_is_replaced_by_ours_when_its_lease_ends() {
    let world = World::new();
    for kind in KINDS {
        let name = word(kind);
        let mut dying = Java::start(&world.server, LEASE);
        dying.expect("j", &format!("lock {name} {name}"), "ok");
        let turn = wait_for_turn(&world.lock_that_hears(kind, name));
        world.until_waiting(kind, name, 1);
        dying.kill();
        let killed = now_ns();
        let waited = since(killed, turn.soon());
        assert!(waited <= LEASE + SLACK, "{waited:?}");
    }
}

/// A killed Java waiter delays ours by Redisson's rule, and no longer.
#[test]
fn a_killed_java_waiter_delays_ours_by_redissons_rule() {
    let world = World::new();
    // The lease is part of the dead waiter's time.
    let guard = world.lock_with(LockKind::Fair, "dead", LEASE).lock().unwrap();
    let mut dying = Java::start(&world.server, LEASE);
    let owner = dying.owner("j");
    let _never_answered = dying.tell("j", &format!("trylock fair dead {} 1000", WAIT.as_millis()));
    world.until_waiting(LockKind::Fair, "dead", 1);
    let turn = wait_for_turn(&world.lock(LockKind::Fair, "dead"));
    world.until_waiting(LockKind::Fair, "dead", 2);
    dying.kill();
    guard.unlock().unwrap();
    // Ours finds out by a heartbeat.
    assert_delays_by_its_time(&world, &owner, FOUND_OUT, || _ = turn.soon());
    world.assert_no_queue("dead");
}

/// The dead waiter keeps its place for its time, and `next` has the lock when that is over, or this much later.
fn assert_delays_by_its_time(world: &World, dead: &str, late_by: Duration, next: impl FnOnce()) {
    let score = world.score("dead", dead).expect("the dead waiter keeps its place for its time");
    let left = score - world.server.time_ms();
    assert!((1..=(LEASE + WAIT).as_millis() as i64).contains(&left), "{left} ms");
    next();
    let late = world.server.time_ms() - score;
    assert!((0..=late_by.as_millis() as i64).contains(&late), "{late} ms");
}

/// A killed waiter of ours delays Java by Redisson's rule, and no longer.
#[test]
fn our_killed_waiter_delays_java_by_redissons_rule() {
    let world = World::new();
    let guard = world.lock_with(LockKind::Fair, "dead", LEASE).lock().unwrap();
    let wait = WAIT.as_millis().to_string();
    let mut dying = Worker::start(PROGRAM, &["try", "redisson", &world.server.url(), "dead", &wait]);
    dying.go();
    world.until_waiting(LockKind::Fair, "dead", 1);
    let owner = world.queue("dead").remove(0);
    let turn = world.java.tell("j", "lock fair dead");
    world.until_waiting(LockKind::Fair, "dead", 2);
    dying.kill();
    guard.unlock().unwrap();
    assert_delays_by_its_time(&world, &owner, SLACK, || _ = turn.expect("ok"));
    world.java.expect("j", "unlock fair dead", "ok");
    world.assert_no_queue("dead");
}

/// A killed waiter of ours that had waited long delays Java no longer, although its heartbeats have moved the dead waiter's time.
/// Java's next waiter checks at the time that it saw first. Redisson 3.16.8 never checks again if its own time has not moved
/// along.
#[test]
fn our_killed_waiter_that_waited_long_delays_no_longer() {
    let world = World::new();
    let guard = world.lock_with(LockKind::Fair, "old", LEASE).lock().unwrap();
    let mut dying =
        Worker::start(PROGRAM, &["queue", &world.server.url(), "old", &WAIT.as_millis().to_string()]);
    dying.go();
    world.until_waiting(LockKind::Fair, "old", 1);
    let owner = world.queue("old").remove(0);
    let score = || world.score("old", &owner).expect("the waiter is in the queue");
    let first = score();
    let turn = world.java.tell("j", "lock fair old");
    world.until_waiting(LockKind::Fair, "old", 2);
    eventually("a heartbeat moves the time", || score() > first);
    eventually("Java checks at the first time", || world.server.time_ms() > first + 500);
    dying.kill();
    guard.unlock().unwrap();
    let last = score();
    assert!(turn.is_quiet());
    turn.expect("ok");
    let late = world.server.time_ms() - last;
    // Since 3.32.0 Java also checks when the lease that it saw ends.
    let bound = if is_old() { SLACK } else { LEASE + SLACK };
    assert!((0..=bound.as_millis() as i64).contains(&late), "{late} ms");
    world.java.expect("j", "unlock fair old", "ok");
    world.assert_no_queue("old");
}
