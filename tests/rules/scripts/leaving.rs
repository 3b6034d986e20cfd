//! A waiter leaves a line whose lock is free: the first of the rest gets the lock.

use fairlock::backend::{Acquired, Backend, Wait, Withdrawn};
use fairlock_tests::{Alone, RedisServer};

use super::world::{NAME, Rules, World};

#[test]
fn the_first_of_the_remaining_waiters_gets_the_free_lock() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let world = World::new(&server, Rules::HandOff);
    let [anna, ben, dora, again] = [&world.anna, &world.ben, &world.dora, &world.anna_again];
    for (leaves, next) in [(ben, dora), (dora, ben), (again, ben)] {
        let held = world.backend.acquire(&world.ask(anna, Wait::Forever)).unwrap();
        assert!(matches!(held, Acquired::Granted { .. }), "{held:?}");
        for (rank, who) in (0..).zip([ben, dora]) {
            let queued = world.backend.acquire(&world.ask(who, Wait::Forever)).unwrap();
            assert!(matches!(queued, Acquired::Queued { rank: r, .. } if r == rank), "{queued:?}");
        }
        world.query::<()>(&["DEL", NAME]); // the lease has ended unnoticed
        assert_eq!(world.backend.withdraw(&world.place(leaves, Wait::Forever)).unwrap(), Withdrawn::Left);
        let state = world.backend.inspect(&world.lock, 0..0).unwrap();
        assert_eq!(state.holder().cloned().expect("a holder").owner, next.owner);
        world.everybody_leaves(None);
        world.next_one_gets_it().unwrap();
    }
}
