//! A lock never has two holders, and two locks never have to do with each other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use super::{Harness, Promise, client, lock, lock_of};

/// While one owner holds the lock, no other gets it: neither another client nor another thread.
pub fn a_lock_is_held_by_one_owner_at_a_time(harness: &impl Harness) {
    let here = client(harness);
    let (ours, theirs) = (lock_of(harness, &here, "one"), lock(harness, "one"));
    // What the owner, another thread and another client see: whether the lock is held, by whom, and how often.
    let seen = || {
        let here = || (ours.is_locked().unwrap(), ours.is_held(), ours.hold_count());
        let elsewhere = thread::scope(|scope| scope.spawn(here).join().unwrap());
        [here(), elsewhere, (theirs.is_locked().unwrap(), theirs.is_held(), theirs.hold_count())]
    };
    let guard = ours.lock().unwrap();
    assert!(theirs.try_lock().unwrap().granted().is_none());
    thread::scope(|scope| {
        scope.spawn(|| assert!(ours.try_lock().unwrap().granted().is_none()));
    });
    assert_eq!(seen(), [(true, true, 1), (true, false, 0), (true, false, 0)]);
    guard.unlock().unwrap();
    assert_eq!(seen(), [(false, false, 0); 3]);
}

/// Unlock and drop release the lock, again and again, and leave nothing behind.
pub fn a_released_lock_is_free(harness: &impl Harness) {
    let (one, other) = (lock(harness, "free"), lock(harness, "free"));
    one.lock().unwrap().unlock().unwrap();
    drop(other.try_lock().unwrap().granted().unwrap());
    drop(one.try_lock().unwrap().granted().unwrap());
    assert!(!one.is_held() && !one.is_locked().unwrap());
    harness.assert_nothing_is_left("free");
}

/// Eight threads in four clients: no two sections overlap, and all of them run.
pub fn threads_of_many_clients_never_overlap(harness: &impl Harness) {
    const TURNS: u32 = 25;
    let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let locks: Vec<_> = (0..4).map(|_| lock_of(harness, &client(harness), "busy")).collect();
    thread::scope(|scope| {
        for lock in locks.iter().chain(&locks) {
            let (inside, done) = (&inside, &done);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let guard = lock.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 8 * TURNS);
    harness.assert_nothing_is_left("busy");
}

/// It is one lock, whichever discipline decides who is next.
pub fn fair_and_plain_handles_of_one_name_exclude_each_other(harness: &impl Harness) {
    if !harness.promises(Promise::BothKinds) {
        return;
    }
    let (one, other) = (client(harness), client(harness));
    let fair = one.fair_lock("both").unwrap().lock().unwrap();
    assert!(other.plain_lock("both").unwrap().try_lock().unwrap().granted().is_none());
    // The same thread re-enters through either.
    let again = one.plain_lock("both").unwrap().try_lock().unwrap().granted().unwrap();
    assert_eq!(again.token(), fair.token());
    drop((again, fair));
    let plain = other.plain_lock("both").unwrap().lock().unwrap();
    assert!(one.fair_lock("both").unwrap().try_lock().unwrap().granted().is_none());
    plain.unlock().unwrap();
}

/// Braces, white space, quotes, NUL and letters of any script are characters like others.
pub fn two_names_are_two_locks_whatever_their_characters(harness: &impl Harness) {
    let client = client(harness);
    let long = "n".repeat(512);
    let names = [
        "a",
        "{a}",
        "a{b}c",
        "{",
        "}",
        "{}",
        " ",
        "a b",
        "line\nline",
        "tab\t",
        "\0",
        "\"'`",
        "*?[x]",
        "ключ",
        "錠",
        "🔒",
        "a:b",
        &long,
    ];
    let names: Vec<&str> = names.into_iter().filter(|name| harness.keeps(name)).collect();
    let guards: Vec<_> = names
        .iter()
        .map(|name| lock_of(harness, &client, name).try_lock().unwrap().granted().expect(name))
        .collect();
    for (name, guard) in names.iter().zip(guards) {
        assert_eq!(guard.name(), *name);
        guard.unlock().unwrap();
    }
    names.iter().for_each(|name| harness.assert_nothing_is_left(name));
}
