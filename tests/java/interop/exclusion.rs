//! A lock held by one side is refused to the other, for all kinds of locks: they share the hash.

use std::time::Duration;

use fairlock::Error;
use fairlock::admin::LockKind;
use fairlock::settings::Discipline;
use fairlock_tests::WorkDir;
use fairlock_tests::history::{check_overlap, count, now_ns, read};
use fairlock_tests::locks::lock_of;

use crate::world::{FAILED_WAIT, KINDS, LONG, SLACK, SOON, World, in_thread, since, word, work};

/// Our discipline and kind, and Java's kind. The first two pairs share more than the hash.
const MEETINGS: [(Discipline, LockKind, LockKind); 6] = [
    (Discipline::Redisson, LockKind::Fair, LockKind::Fair),
    (Discipline::Redisson, LockKind::Plain, LockKind::Plain),
    (Discipline::HandOff, LockKind::Fair, LockKind::Fair),
    (Discipline::HandOff, LockKind::Fair, LockKind::Plain),
    (Discipline::Redisson, LockKind::Fair, LockKind::Plain),
    (Discipline::Redisson, LockKind::Plain, LockKind::Fair),
];

#[test]
fn a_lock_held_by_one_side_is_refused_to_the_other() {
    let world = World::new();
    for (number, (discipline, ours, theirs)) in MEETINGS.into_iter().enumerate() {
        let (name, java) = (format!("meeting-{number}"), &world.java);
        let lock = lock_of(&world.client_with(discipline, LONG), ours, &name);
        let their = |verb: &str, more: &str| format!("{verb} {} {name}{more}", word(theirs));

        java.expect("j", &their("lock", ""), "ok");
        assert!(lock.is_locked().unwrap());
        assert!(lock.try_lock().unwrap().granted().is_none());
        assert!(lock.try_lock_for(Duration::from_millis(100)).unwrap().granted().is_none());
        assert_eq!(lock.admin().inspect().unwrap().holder().unwrap().owner.as_str(), java.owner("j"));
        java.expect("j", &their("unlock", ""), "ok");

        let guard = lock.try_lock().unwrap().granted().expect("Java has released the lock");
        java.expect("j", &their("locked", ""), "true");
        java.expect("j", &their("trylock", ""), "false");
        java.expect("j", &their("trylock", &format!(" {FAILED_WAIT}")), "false");
        java.expect_not_held("j", &their("unlock", ""));
        guard.unlock().unwrap();

        java.expect("j", &their("trylock", ""), "true");
        java.expect("j", &their("unlock", ""), "ok");
    }
}

/// A name is one lock: our permit keeps Java's locks out, and Java's lock refuses our permits.
#[test]
fn a_permit_of_ours_and_a_lock_of_java_are_never_held_together() {
    let world = World::new();
    let client = world.client_with(Discipline::HandOff, LONG);
    for theirs in KINDS.map(word) {
        let name = format!("permits-{theirs}");
        let permits = client.semaphore(&name, 5).unwrap();
        let permit = permits.acquire().unwrap();
        world.java.expect("j", &format!("trylock {theirs} {name}"), "false");
        permit.unlock().unwrap();
        world.java.expect("j", &format!("trylock {theirs} {name}"), "true");
        assert!(matches!(permits.try_acquire(), Err(Error::Mismatch { .. })));
        world.java.expect("j", &format!("unlock {theirs} {name}"), "ok");
    }
}

/// Where only the hash is shared, neither side wakes the other. Ours look from time to time, Java's when the lease that
/// they saw ends. So leases are short here.
#[test]
fn workers_of_both_sides_never_overlap_whatever_their_locks() {
    let lease = Duration::from_millis(1500);
    let (world, dir) = (World::with_watchdog(lease), WorkDir::new());
    for (number, (discipline, ours, theirs)) in MEETINGS.into_iter().enumerate() {
        let name = format!("meeting-{number}");
        let history = dir.file(&name);
        let path = history.to_str().unwrap();
        let call = format!("work {} {name} 500 5 {path}", word(theirs));
        let javas = ["j1", "j2"].map(|thread| world.java.tell(thread, &call));
        let rusts = ["r1", "r2"].map(|who| {
            let lock = lock_of(&world.client_with(discipline, lease), ours, &name);
            let history = history.clone();
            in_thread(move || work(&lock, who, Duration::from_millis(500), 5, &history))
        });
        let turns: u64 = rusts.iter().map(|rust| rust.wait(3 * SOON)).sum();
        let their_turns: u64 =
            javas.iter().map(|java| java.wait(3 * SOON).result.parse::<u64>().unwrap()).sum();
        let events = read(&history).unwrap();
        assert_eq!(count(&events, &name) as u64, turns + their_turns);
        check_overlap(&events).unwrap();
    }
}

#[test]
fn our_release_wakes_java_that_waits_for_a_plain_lock() {
    let world = World::alone();
    let client = world.client_with(Discipline::HandOff, LONG);
    let guard = lock_of(&client, LockKind::Fair, "plain").lock().unwrap();
    let java = world.java.tell("j", "lock plain plain");
    world.until_waiting(LockKind::Plain, "plain", 1);
    world.java.until_asleep("j");
    let released = now_ns();
    guard.unlock().unwrap();
    let waited = since(released, java.expect("ok").ended);
    assert!(waited < SLACK, "{waited:?}");
    world.java.expect("j", "unlock plain plain", "ok");
    world.until_waiting(LockKind::Plain, "plain", 0);
}
