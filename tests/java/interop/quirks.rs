//! Redisson's own mistakes, by name; beside them our side keeps its promises.

use std::time::Duration;

use fairlock::{Cancel, Client, Discipline, Error, LockKind, RedisBackend};
use fairlock_tests::eventually;
use fairlock_tests::history::now_ns;
use fairlock_tests::locks::lock_of;
use fairlock_tests::server_state::scripts_run;

use crate::java::{Java, is_old};
use crate::world::{
    FOUND_OUT, LONG, PLACE_TTL, SLACK, SOON, World, in_thread, queue, since, timeouts, wait_for_turn, word,
};

/// The number of scripts in a second.
fn scripts_in_a_second(world: &World) -> u64 {
    let before = scripts_run(&world.server);
    std::thread::sleep(Duration::from_secs(1)); // the second of silence is what is measured
    scripts_run(&world.server) - before
}

/// Behind a dead head Java asks without a pause, and ours by heartbeats only. Since 3.32.0 a waiter behind the first is told to
/// ask again in 0 ms while the lock is free.
#[test]
fn behind_a_dead_head_java_asks_without_a_pause() {
    let world = World::new();
    let guard = world.lock(LockKind::Fair, "spin").lock().unwrap();
    let mut dying = Java::start(&world.server, LONG);
    let owner = dying.owner("j");
    let _never_answered = dying.tell("j", "trylock fair spin 60000 1000");
    world.until_waiting(LockKind::Fair, "spin", 1);
    dying.kill();
    let ours = wait_for_turn(&world.lock(LockKind::Fair, "spin"));
    world.until_waiting(LockKind::Fair, "spin", 2);
    guard.unlock().unwrap();
    let of_ours = scripts_in_a_second(&world);
    assert!(of_ours <= 10, "{of_ours} scripts in a second");
    let theirs = world.java.tell("j", "lock fair spin");
    world.until_waiting(LockKind::Fair, "spin", 3);
    if is_old() {
        let of_both = scripts_in_a_second(&world);
        assert!(of_both <= 20, "{of_both} scripts in a second");
    } else {
        let before = scripts_run(&world.server);
        eventually("Java asks without a pause", || scripts_run(&world.server) > before + 500);
    }
    // The dead waiter's time ends.
    world.server.query::<i64>(&["ZADD", &timeouts("spin"), "1", &owner]);
    ours.soon();
    theirs.expect("ok");
    world.java.expect("j", "unlock fair spin", "ok");
}

/// Java's wait in seconds counts as milliseconds, and costs ours no place. `tryLock(wait, unit)` without a lease sends the bare
/// number as milliseconds. When it gives up, it subtracts the full wait from the waiters behind it.
#[test]
fn javas_wait_in_seconds_counts_as_milliseconds() {
    let world = World::new();
    let guard = world.lock(LockKind::Fair, "unit").lock().unwrap();
    let owner = world.java.owner("j");
    let theirs = world.java.tell("j", "trylock-seconds fair unit 3");
    world.until_waiting(LockKind::Fair, "unit", 1);
    // Its time is the end of the lease, by Java's clock at the request, plus the wait that it sent.
    let end = "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) + redis.call('PTTL', KEYS[1])";
    let end: i64 = world.server.query(&["EVAL", end, "1", "unit"]);
    let added = world.score("unit", &owner).unwrap() - end;
    assert!(added < 500, "3 s count as {added} ms");
    let client = world.client();
    let turn = wait_for_turn(&client.fair_lock("unit").unwrap());
    world.until_waiting(LockKind::Fair, "unit", 2);
    theirs.expect("false");
    world.until_waiting(LockKind::Fair, "unit", 1);
    guard.unlock().unwrap();
    turn.soon();
    assert_eq!(client.stats().places_lost, 0);
}

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
        let guard = lock.try_lock_for(2 * SOON).unwrap().guard().expect("in time");
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

/// An interrupted Java waiter leaves its entry in the queue, a ghost that counts as alive until its time ends. An interrupted
/// waiter of ours leaves none.
#[test]
fn an_interrupted_java_waiter_leaves_a_ghost() {
    let world = World::new();
    let lock = world.lock_with(LockKind::Fair, "ghost", Duration::from_millis(2400));
    let guard = lock.lock().unwrap();
    let owner = world.java.owner("j");
    let theirs = world.java.tell("j", "trylock fair ghost 1500 1000");
    world.until_waiting(LockKind::Fair, "ghost", 1);
    world.java.until_asleep("j");
    world.java.expect("other", "interrupt j", "ok");
    let result = theirs.wait(SOON).result;
    assert!(result.starts_with("!InterruptedException"), "{result}");
    assert_eq!(world.queue("ghost"), std::slice::from_ref(&owner), "the ghost");

    let cancel = Cancel::new();
    let cancellable = lock.cancelled_by(&cancel);
    let cancelled = in_thread(move || cancellable.lock().map(drop).unwrap_err());
    world.until_waiting(LockKind::Fair, "ghost", 2);
    cancel.cancel();
    assert!(matches!(cancelled.soon(), Error::Cancelled { .. }));
    world.until_waiting(LockKind::Fair, "ghost", 1);

    let ours = wait_for_turn(&lock);
    world.until_waiting(LockKind::Fair, "ghost", 2);
    let score = world.score("ghost", &owner).unwrap();
    guard.unlock().unwrap();
    ours.soon();
    let late = world.server.time_ms() - score;
    assert!(late <= FOUND_OUT.as_millis() as i64, "{late} ms");
    world.assert_no_queue("ghost");
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

/// A Java waiter that gives up first in the queue is noticed by our heartbeat. `acquire failed` does not notify the new first
/// waiter. The lock is free when Java's first gives up, and Java would not check before the former holder's lease ends.
#[test]
fn our_heartbeat_notices_that_javas_first_gave_up() {
    let world = World::new();
    let guard = world.lock(LockKind::Fair, "first").lock().unwrap();
    let theirs = world.java.tell("j", "trylock fair first 1000 1000");
    world.until_waiting(LockKind::Fair, "first", 1);
    // Heartbeats come every 2 s. Usually none comes before Java gives up and tells it that the lock is free.
    let backend =
        RedisBackend::builder(&world.server.url()).discipline(Discipline::Redisson).connect().unwrap();
    let client = Client::builder(backend).place_ttl(Duration::from_secs(6)).build().unwrap();
    let ours = wait_for_turn(&client.fair_lock("first").unwrap());
    world.until_waiting(LockKind::Fair, "first", 2);
    world.server.query::<i64>(&["DEL", "first"]);
    let gone = now_ns();
    if theirs.wait(SOON).result == "true" {
        world.java.ask("j", "unlock fair first");
    }
    let waited = since(gone, ours.soon());
    assert!(waited <= Duration::from_secs(2) + SLACK, "{waited:?}");
    drop(guard);
}

/// The unlock of a fair lock that is gone succeeds in Java and is an error in ours. Java's fair lock reports success to a holder
/// whose lease has ended, if the lock is free now.
#[test]
fn unlocking_a_fair_lock_that_is_gone_succeeds_in_java() {
    let world = World::new();
    world.java.expect("j", "lock fair over 300", "ok");
    eventually("the lease ends", || world.server.query::<i64>(&["EXISTS", "over"]) == 0);
    world.java.expect("j", "unlock fair over", "ok");

    let guard = world.lock(LockKind::Fair, "over").fixed_lease(Duration::from_millis(300)).lock().unwrap();
    eventually("the lease ends", || world.server.query::<i64>(&["EXISTS", "over"]) == 0);
    assert!(guard.is_lost());
    let error = guard.unlock().unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");

    // Plain locks report it on both sides.
    world.java.expect("j", "lock plain over 300", "ok");
    eventually("the lease ends", || world.server.query::<i64>(&["EXISTS", "over"]) == 0);
    world.java.expect_not_held("j", "unlock plain over");
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
