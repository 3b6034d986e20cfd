//! A failed wait of either side leaves no trace, and the waiters behind it keep their order.

use std::time::Duration;

use fairlock::LockKind;
use fairlock_tests::history::{check_order, grants, read};
use fairlock_tests::{WorkDir, eventually};

use crate::world::{FAILED_WAIT, KINDS, World, in_thread, word, work};

#[test]
fn a_failed_wait_of_either_side_leaves_no_trace() {
    let world = World::new();
    for kind in KINDS {
        let (name, lock) = (word(kind), world.lock(kind, word(kind)));
        world.java.expect("j", &format!("lock {name} {name}"), "ok");
        assert!(lock.try_lock_for(Duration::from_millis(200)).unwrap().guard().is_none());
        world.assert_no_queue(name);
        world.java.expect("j", &format!("unlock {name} {name}"), "ok");

        let guard = lock.lock().unwrap();
        world.java.expect("j", &format!("trylock {name} {name} {FAILED_WAIT}"), "false");
        world.java.expect("j", &format!("trylock {name} {name} {FAILED_WAIT} 1000"), "false");
        world.assert_no_queue(name);
        guard.unlock().unwrap();
    }
}

#[test]
fn waiters_behind_a_failed_wait_keep_their_order() {
    let (world, dir) = (World::new(), WorkDir::new());
    let (name, history) = ("behind", dir.file("history"));
    let guard = world.lock(LockKind::Fair, name).lock().unwrap();
    let mut failing = Vec::new();
    let mut rusts = Vec::new();
    let mut javas = Vec::new();
    let mut standing = 0;
    let mut next = || {
        standing += 1;
        world.until_waiting(LockKind::Fair, name, standing);
    };
    for (gives_up, rust, java) in [("j-fails-1", "r1", "j1"), ("j-fails-2", "r2", "j2")] {
        // The waits are long enough that all are in the queue before the first one ends.
        failing.push(world.java.tell(gives_up, &format!("trylock fair {name} 3000 1000")));
        next();
        let ours = world.lock(LockKind::Fair, name);
        let timed = ours.clone();
        rusts.push(in_thread(move || {
            u64::from(timed.try_lock_for(Duration::from_secs(3)).unwrap().guard().is_some())
        }));
        next();
        let path = history.clone();
        rusts.push(in_thread(move || work(&ours, rust, Duration::ZERO, 1, &path)));
        next();
        javas.push(world.java.tell(java, &format!("work fair {name} 0 1 {}", history.display())));
        next();
    }
    failing.iter().for_each(|java| drop(java.expect("false")));
    for (number, rust) in rusts.iter().enumerate() {
        if number % 2 == 0 {
            assert_eq!(rust.soon(), 0);
        }
    }
    // A wait returns on time, and its place is withdrawn in the background.
    eventually("the others stand in the queue", || world.queue(name).len() == 4);
    guard.unlock().unwrap();
    javas.iter().for_each(|java| drop(java.expect("1")));
    for rust in rusts.iter().skip(1).step_by(2) {
        assert_eq!(rust.soon(), 1);
    }
    check_order(&grants(&read(&history).unwrap(), name), &["r1", "j1", "r2", "j2"]).unwrap();
    world.assert_no_queue(name);
}
