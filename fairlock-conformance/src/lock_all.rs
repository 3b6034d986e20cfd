//! Several locks at once. They are fair locks, so a store of plain locks has nothing to show here.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use fairlock_core::{Error, LockKind, TryLock};

use super::{Harness, LEASE, PATIENCE, client, lock, until, until_in_queue, until_told, until_waiting};

/// While one lock of the list is busy the others are free in the end; a loss of one ends the wait for the next.
pub fn lock_all_takes_all_or_none(harness: &impl Harness) {
    if harness.kind() != LockKind::Fair {
        return;
    }
    let (ours, names) = (client(harness), ["all:c", "all:a", "all:b", "all:a"]);
    let theirs = names.map(|name| lock(harness, name));
    let [last, first, middle, _] = &theirs;
    let free = |lock: &fairlock_core::Lock| {
        until("it is given back", || lock.try_lock().unwrap().granted().is_some())
    };
    // An attempt, and a wait that ends.
    let busy = last.lock().unwrap();
    assert!(matches!(ours.try_lock_all(&names).unwrap(), TryLock::Busy(_)));
    assert!(first.try_lock().unwrap().granted().is_some() && middle.try_lock().unwrap().granted().is_some());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| ours.try_lock_all_for(&names, LEASE / 2).unwrap().granted().is_none());
        until_waiting(harness, last, 1);
        assert!(middle.try_lock().unwrap().granted().is_none(), "it holds what it has while it waits");
        harness.pass(LEASE / 2);
        assert!(waiter.join().unwrap());
    });
    [first, middle].into_iter().for_each(free);
    // A loss: the last lock stays busy.
    thread::scope(|scope| {
        let waiter = scope.spawn(|| ours.lock_all(&names).map(drop));
        until_waiting(harness, last, 1);
        assert!(first.admin().force_unlock().unwrap());
        until_told(harness);
        assert!(matches!(waiter.join().unwrap(), Err(Error::Lost(lost)) if lost.lock.as_str() == "all:a"));
    });
    [first, middle].into_iter().for_each(free);
    until_in_queue(harness, last, 0);
    busy.unlock().unwrap();
    // All of them.
    let guard = ours.lock_all(&names).unwrap();
    assert_eq!(guard.names().collect::<Vec<_>>(), ["all:a", "all:b", "all:c"]);
    assert!(theirs.iter().all(|lock| lock.try_lock().unwrap().granted().is_none()));
    assert!(!guard.is_lost() && guard.renew().unwrap() > LEASE / 2);
    guard.unlock().unwrap();
    theirs.iter().for_each(free);
    names.iter().for_each(|name| harness.assert_nothing_is_left(name));
}

/// Six threads of three clients name the same locks in different orders, and no two hold one of them at once.
pub fn lock_alls_never_deadlock(harness: &impl Harness) {
    if harness.kind() != LockKind::Fair {
        return;
    }
    const TURNS: u32 = 20;
    const NAMES: [&str; 3] = ["order:a", "order:b", "order:c"];
    let lists: [&[usize]; 6] = [&[0, 1, 2], &[2, 1, 0], &[1, 2, 0], &[2, 0], &[1, 0], &[2, 1]];
    let clients = [(); 3].map(|()| client(harness));
    let inside = [const { AtomicU32::new(0) }; 3];
    let (turns, turned) = mpsc::channel();
    let in_time = thread::scope(|scope| {
        for (thread, list) in lists.into_iter().enumerate() {
            let (client, inside, turns) = (&clients[thread % 3], &inside, turns.clone());
            scope.spawn(move || {
                let names: Vec<_> = list.iter().map(|&at| NAMES[at]).collect();
                for _ in 0..TURNS {
                    // It is shut down after a deadlock, so that the case ends.
                    let Ok(guard) = client.lock_all(&names) else { return };
                    let alone = list.iter().all(|&at| inside[at].fetch_add(1, Ordering::SeqCst) == 0);
                    thread::yield_now();
                    list.iter().for_each(|&at| _ = inside[at].fetch_sub(1, Ordering::SeqCst));
                    let unlocked = guard.unlock().is_ok();
                    if turns.send(alone && unlocked).is_err() {
                        return;
                    }
                }
            });
        }
        drop(turns);
        let mut in_time = 0;
        while let Ok(alone) = turned.recv_timeout(PATIENCE) {
            assert!(alone, "two holders, or a loss");
            in_time += 1;
        }
        clients.iter().for_each(|client| _ = client.shutdown());
        in_time
    });
    assert_eq!(in_time, 6 * TURNS, "no turn for long: a deadlock");
    NAMES.iter().for_each(|name| harness.assert_nothing_is_left(name));
}
