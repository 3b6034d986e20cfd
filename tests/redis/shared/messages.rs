//! What holders and waiters are told, and what `inspect` shows.

use fairlock::admin::LockKind;
use fairlock::backend::{Backend, ForceReleased};
use fairlock_tests::server_state::scripts_run;

use super::support::{Told, World};

/// A force takes the lock from more holders than one script looks at. A script looks at some hundred holders. Those who are
/// granted the lock between two scripts keep it.
#[test]
fn a_force_takes_the_lock_from_more_than_one_script_sees() {
    let world = World::of(LockKind::ReadWrite);
    for number in 1..=1200 {
        world.granted(&world.asker(number, 1));
    }
    let state = world.backend.inspect(&world.lock, 0..9).unwrap();
    assert_eq!((state.holders.len(), state.unlisted_holders, state.taken()), (500, 700, 1200));
    world.queued(&world.asker(5000, u32::MAX));
    let before = scripts_run(&world.server);
    assert_eq!(world.backend.force_release(&world.lock).unwrap(), ForceReleased::Taken);
    assert_eq!(scripts_run(&world.server) - before, 4, "the first one was not known");
    let mut told: Vec<u64> = (0..1200)
        .map(|_| match world.next_told() {
            Told::Taken(number, _) => number,
            other => panic!("{other:?}"),
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, Vec::from_iter(1..=1200));
    assert!(matches!(world.next_told(), Told::Granted(5000, _)));
    assert_eq!(world.holders(), [5000]);
}
