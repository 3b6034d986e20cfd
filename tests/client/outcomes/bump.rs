//! A bump of a lock without a line.

use crate::support::World;

#[test]
fn a_bump_of_a_plain_lock_changes_nothing() {
    let world = World::new();
    let ours = world.client().plain_lock("plain").unwrap();
    let mut guard = ours.lock().unwrap();
    let token = guard.token();
    let waiting = world.client().plain_lock("plain").unwrap().request().unwrap();
    guard.bump().unwrap();
    assert_eq!(guard.token(), token);
    assert!(!guard.is_lost() && ours.is_held());
    drop((waiting, guard));
}
