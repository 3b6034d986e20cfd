//! A failed wait of either side leaves no trace, and the waiters behind it keep their order.

use std::time::Duration;

use crate::world::{FAILED_WAIT, KINDS, World, word};

#[test]
fn a_failed_wait_of_either_side_leaves_no_trace() {
    let world = World::new();
    for kind in KINDS {
        let (name, lock) = (word(kind), world.lock(kind, word(kind)));
        world.java.expect("j", &format!("lock {name} {name}"), "ok");
        assert!(lock.try_lock_for(Duration::from_millis(200)).unwrap().granted().is_none());
        world.assert_no_queue(name);
        world.java.expect("j", &format!("unlock {name} {name}"), "ok");

        let guard = lock.lock().unwrap();
        world.java.expect("j", &format!("trylock {name} {name} {FAILED_WAIT}"), "false");
        world.java.expect("j", &format!("trylock {name} {name} {FAILED_WAIT} 1000"), "false");
        world.assert_no_queue(name);
        guard.unlock().unwrap();
    }
}
