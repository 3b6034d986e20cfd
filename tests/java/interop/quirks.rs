//! Redisson's own mistakes, by name; beside them our side keeps its promises.

use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock::settings::Discipline;
use fairlock::{Client, RedisBackend};
use fairlock_tests::eventually;
use fairlock_tests::history::now_ns;
use fairlock_tests::locks::lock_of;

use crate::java::is_old;
use crate::world::{FOUND_OUT, LONG, PLACE_TTL, SOON, World, in_thread, queue, since, wait_for_turn, word};

/// A failed `tryLockAsync(wait, lease, unit)` of Java takes 5 min from all waiters behind it, whatever it had added, and a waiter
/// of ours still gets the lock. If its wait is shorter, it counts as dead until its next heartbeat. If a Java client asks before
/// that, it removes the live waiter, which can't be prevented; ours then asks again at once.
#[test]
fn javas_failed_async_wait_takes_five_minutes_from_ours() {
    let world = World::new();
    let guard = world.lock(LockKind::Fair, "async").lock().unwrap();
    let theirs = world.java.tell("j1", "trylock-async fair async 700 1000");
    world.until_waiting(LockKind::Fair, "async", 1);
    let lock = world.lock(LockKind::Fair, "async");
    let timed = in_thread(move || {
        let guard = lock.try_lock_for(2 * SOON).unwrap().granted().expect("in time");
        guard.unlock().unwrap();
        now_ns()
    });
    world.until_waiting(LockKind::Fair, "async", 2);
    theirs.expect("false");
    world.java.expect("j1", "trylock fair async", "false"); // removes waiters that count as dead
    eventually("ours is in the queue with time left", || {
        let queue = world.queue("async");
        queue.len() == 1
            && world.score("async", &queue[0]).is_some_and(|score| score > world.server.time_ms())
    });
    guard.unlock().unwrap();
    timed.soon();
    world.assert_no_queue("async");
}

/// A waiter of ours keeps its place, however long the holder works and however often Java asks. Java's times are set once: a
/// waiter that waits longer than its time, behind a holder that keeps working, is removed alive by the next request. Heartbeats
/// keep ours, and those of Java's behind ours.
#[test]
fn our_waiter_keeps_its_place_however_long_a_hold_lasts() {
    let world = World::new();
    let lease = Duration::from_secs(2);
    let backend = RedisBackend::builder(&world.server.url())
        .discipline(Discipline::Redisson)
        .thread_wait(Duration::from_secs(3))
        .response_timeout(lease / 2)
        .connect()
        .unwrap();
    let client = Client::builder(backend).lease(lease).place_ttl(PLACE_TTL).build().unwrap();
    let lock = client.fair_lock("long").unwrap();
    let guard = lock.lock().unwrap();
    let ours = wait_for_turn(&lock);
    world.until_waiting(LockKind::Fair, "long", 1);
    let place = world.queue("long").remove(0);
    // The waiter's time in the queue is the lease and 3 s.
    let start = now_ns();
    eventually("7 s", || {
        world.java.expect("j", "trylock fair long", "false"); // removes waiters that count as dead
        assert_eq!(world.queue("long"), std::slice::from_ref(&place));
        since(start, now_ns()) > Duration::from_secs(7)
    });
    assert!(ours.is_quiet());
    guard.unlock().unwrap();
    ours.soon();
    assert_eq!(client.stats().places_lost, 0);
}

/// A lock that vanishes without a message (Redisson's `delete`, an eviction) wakes no Java waiter. Nor does the first
/// one when it leaves. Our heartbeats find out, and notify Java's first in the queue too.
#[test]
fn our_heartbeats_find_a_vanished_lock_for_java_too() {
    let world = World::new();
    let guard = world.lock(LockKind::Fair, "gone").lock().unwrap();
    let theirs = world.java.tell("j", "lock fair gone");
    world.until_waiting(LockKind::Fair, "gone", 1);
    let ours = wait_for_turn(&world.lock(LockKind::Fair, "gone"));
    world.until_waiting(LockKind::Fair, "gone", 2);
    world.server.query::<i64>(&["DEL", "gone"]);
    let gone = now_ns();
    let woken = since(gone, theirs.expect("ok").ended);
    assert!(woken <= FOUND_OUT, "{woken:?}");
    world.java.expect("j", "unlock fair gone", "ok");
    ours.soon();
    drop(guard);
}

/// A list entry without a time blocks Java for ever (before 3.31.0 each call fails), and is removed by ours.
#[test]
fn an_entry_without_a_time_blocks_java_until_ours_come() {
    let world = World::new();
    world.server.query::<i64>(&["RPUSH", &queue("orphan"), "nobody:1"]);
    let result = world.java.ask("j", "trylock fair orphan").result;
    if is_old() {
        assert!(result.starts_with("!RedisException"), "{result}");
    } else {
        assert_eq!(result, "false");
    }
    world.lock(LockKind::Fair, "orphan").lock().unwrap().unlock().unwrap();
    world.java.expect("j", "trylock fair orphan", "true");
    world.java.expect("j", "unlock fair orphan", "ok");
}

/// Fair and plain handles of one name exclude each other, but notify only their own kind. Ours find out by
/// heartbeats.
#[test]
fn locks_of_two_kinds_wake_only_their_own() {
    let world = World::new();
    let meetings = [
        (Discipline::Redisson, LockKind::Fair, LockKind::Plain),
        (Discipline::Redisson, LockKind::Plain, LockKind::Fair),
        (Discipline::HandOff, LockKind::Fair, LockKind::Fair),
        (Discipline::HandOff, LockKind::Fair, LockKind::Plain),
    ];
    for (number, (discipline, ours, theirs)) in meetings.into_iter().enumerate() {
        let (name, theirs) = (format!("kinds-{number}"), word(theirs));
        let lock = lock_of(&world.client_with(discipline, LONG), ours, &name);
        world.java.expect("j", &format!("lock {theirs} {name}"), "ok");
        let turn = wait_for_turn(&lock);
        eventually("the waiter waits", || match (discipline, ours) {
            (Discipline::HandOff, _) => {
                world.server.query::<i64>(&["EXISTS", &format!("fairlock_queue:{{{name}}}")]) == 1
            }
            (_, LockKind::Fair) => world.queue(&name).len() == 1,
            _ => {
                let channel = format!("redisson_lock__channel:{{{name}}}");
                world.server.query::<(String, i64)>(&["PUBSUB", "NUMSUB", &channel]).1 == 1
            }
        });
        let released = world.java.expect("j", &format!("unlock {theirs} {name}"), "ok").began;
        let waited = since(released, turn.soon());
        assert!(waited <= FOUND_OUT, "{waited:?}");
    }
}
