//! The kinds of one name, and requests that no lock could grant.

use fairlock_core::LockKind;
use fairlock_core::LockKind::{Fair as FAIR, Plain as PLAIN, ReadWrite as READ_WRITE};
use fairlock_core::backend::BackendErrorKind::{InvalidConfig, Mismatch};
use fairlock_core::backend::{Acquired, Backend, Renewal, Wait};

use crate::support::*;

const SEMAPHORE_OF_5: LockKind = LockKind::Semaphore { permits: 5 };
const EIGHT: LockKind = LockKind::Semaphore { permits: 8 };
/// A writer's.
const ALL: u32 = u32::MAX;
const ONE: LockKind = LockKind::Semaphore { permits: 1 };

/// A name that is held as another kind is refused with both kinds.
#[test]
fn a_name_held_as_another_kind_is_refused_with_both() {
    for (kind, is, asked, asks) in [
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", ONE, "a semaphore of 1 permit"),
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", READ_WRITE, "a read-write lock"),
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", FAIR, "an exclusive lock"),
        (READ_WRITE, "a read-write lock", PLAIN, "an exclusive lock"),
        (READ_WRITE, "a read-write lock", ONE, "a semaphore of 1 permit"),
        (FAIR, "an exclusive lock", SEMAPHORE_OF_5, "a semaphore of 5 permits"),
    ] {
        let mut world = World::of(kind);
        assert!(world.backend.supports(kind), "{kind}");
        let token = world.granted(1, 1);
        world.as_kind(asked);
        let mut errors = [Wait::Forever, Wait::No].map(|wait| world.ask(2, 1, wait).unwrap_err()).to_vec();
        errors.push(world.backend.force_release(&world.lock).unwrap_err());
        match world.backend.inspect(&world.lock, 0..100) {
            Ok(state) => {
                assert!(kind.capacity() > 1 && asked.capacity() > 1);
                assert_eq!(state.capacity, Some(kind.capacity()));
            }
            Err(error) => errors.push(error),
        }
        for error in errors {
            assert_eq!(error.kind(), Mismatch);
            assert_eq!(error.message(), format!("it is {is}, and you asked for {asks}: use another name"));
        }
        assert_eq!(*world.beat(&[2])[0].as_ref().unwrap(), Renewal::Lost);
        world.as_kind(kind);
        assert_eq!(world.seen(), (vec![1], vec![]));
        world.releases(1, token);
    }
}

/// The one that asks for it as another kind finds the first waiter in the queue, and makes it the holder. So it is while a waiter for a
/// plain lock is heard.
#[test]
fn a_name_that_is_waited_for_as_another_kind_is_refused() {
    let mut world = World::of(SEMAPHORE_OF_5);
    world.granted(1, 5);
    world.queued(2, 1);
    world.backend.faults().lose_hold("orders");
    world.as_kind(READ_WRITE);
    assert_eq!(world.ask(3, 1, Wait::Forever).unwrap_err().kind(), Mismatch);
    assert_eq!(world.told(0), ["granted 2"]);
    let mut world = World::of(PLAIN);
    world.granted(1, 1);
    assert!(matches!(world.ask(2, 1, Wait::Forever), Ok(Acquired::Busy { .. })));
    world.backend.faults().lose_hold("orders");
    world.as_kind(SEMAPHORE_OF_5);
    assert_eq!(world.ask(3, 1, Wait::No).unwrap_err().kind(), Mismatch);
    world.clock.advance(TTL);
    world.granted(3, 1);
}

/// An absent waiter keeps no name, and is granted nothing of the new kind before it asks. It would get seven units beside a
/// writer.
#[test]
fn an_absent_waiter_is_granted_nothing_of_the_new_kind() {
    let mut world = World::of(EIGHT);
    let token = world.granted(1, 8);
    world.queued(OF_SECOND, 7);
    world.hangs_up(1);
    world.releases(1, token);
    world.as_kind(READ_WRITE);
    let token = world.granted(2, ALL);
    world.as_kind(EIGHT);
    assert_eq!(world.ask(OF_SECOND, 7, Wait::Forever).unwrap_err().kind(), Mismatch);
    world.as_kind(READ_WRITE);
    world.releases(2, token);
    assert_eq!(world.seen().0, []);
    world.granted(3, ALL);
    // The same with a waiter that was cut off and is back.
    let mut world = World::of(EIGHT);
    world.granted(1, 8);
    world.queued(OF_SECOND, 7);
    world.backend.faults().cut_off(world.client(1));
    world.backend.faults().lose_hold("orders");
    world.as_kind(READ_WRITE);
    let token = world.granted(2, ALL);
    world.backend.faults().bring_back(world.client(1));
    world.releases(2, token);
    assert_eq!(world.seen().0, []);
    world.granted(3, ALL);
}

/// A request for no units or too many is refused and leaves nothing.
#[test]
fn a_request_for_no_units_or_too_many_leaves_nothing() {
    for (kind, too_many) in
        [(FAIR, 2), (PLAIN, 2), (SEMAPHORE_OF_5, 6), (LockKind::Semaphore { permits: 0 }, 1)]
    {
        let world = World::of(kind);
        for units in [0, too_many, u32::MAX] {
            for wait in [Wait::No, Wait::Forever] {
                let error = world.ask(1, units, wait).unwrap_err();
                assert_eq!(error.kind(), InvalidConfig);
                assert_eq!(error.message(), format!("a request for {units} units of what is a {kind}"));
            }
            assert_eq!(world.seen(), (vec![], vec![]));
        }
    }
}
