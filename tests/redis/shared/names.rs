//! One name is one lock: other kinds and other numbers of permits are told of it.

use fairlock::admin::LockKind;
use fairlock::backend::{
    Acquire, Acquired, Backend, BackendError, BackendErrorKind, LockId, Place, Renewal, RequestId, Wait, only,
};
use fairlock::owner::OwnerId;
use fairlock::settings::Discipline;
use fairlock::{FencingToken, RedisBackend};

use fairlock_tests::locks::patient;

use super::support::World;

fn as_kind(world: &World, kind: LockKind) -> LockId {
    LockId::new(world.lock.name.clone(), kind)
}

fn ask(backend: &RedisBackend, lock: &LockId, units: u32, wait: Wait) -> Result<Acquired, BackendError> {
    let owner = OwnerId::new("6e55cd0a-2b34-4b6c-8df1-9ef7f6c0b1aa:9");
    let mut place = Place::new(lock, &owner, RequestId::new(9));
    (place.units, place.wait) = (units, wait);
    only(backend.acquire(&[Acquire::new(place, super::support::LEASE)]))
}

#[track_caller]
fn mismatch<T: std::fmt::Debug>(answer: Result<T, BackendError>, says: [&str; 2]) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Mismatch, "{error}");
    assert!(says.iter().all(|says| error.message().contains(says)), "{error}");
}

/// By the other rules too, which have no such locks: they would see a hash without a holder of theirs.
#[test]
fn a_semaphores_name_is_no_lock_of_redissons() {
    let world = World::with(5);
    let holder = world.asker(1, 2);
    let token = world.granted(&holder);
    let redisson = patient(&world.server.url()).discipline(Discipline::Redisson).connect().unwrap();
    let says = ["a semaphore of 5 permits", "an exclusive lock"];
    for lock in [LockKind::Fair, LockKind::Plain].map(|kind| as_kind(&world, kind)) {
        for wait in [Wait::No, Wait::Forever] {
            mismatch(ask(&redisson, &lock, 1, wait), says);
        }
        mismatch(redisson.force_release(&lock), says);
        mismatch(redisson.inspect(&lock, 0..9), says);
    }
    assert_eq!(world.holders(), [1]);
    world.release(&holder, token);
    // And the other way round.
    for lock in [LockKind::Fair, LockKind::Plain].map(|kind| as_kind(&world, kind)) {
        let Ok(Acquired::Granted { .. }) = ask(&redisson, &lock, 1, Wait::No) else { panic!() };
        let says = ["an exclusive lock", "a semaphore of 5 permits"];
        mismatch(world.ask(&world.asker(1, 1)), says);
        mismatch(world.try_once(&world.asker(1, 1)), says);
        mismatch(world.backend.inspect(&world.lock, 0..9), says);
        mismatch(world.backend.force_release(&world.lock), says);
        assert_eq!(world.renew_hold(&world.asker(1, 1), FencingToken::new(1)), Renewal::Lost);
        redisson.force_release(&lock).unwrap();
    }
}

/// A name that is waited for and not held is no other kind of lock. The capacity of an idle name is that of its first waiter: one
/// of another kind is refused, and takes nothing from the queue.
#[test]
fn a_name_with_waiters_is_no_other_kind_of_lock() {
    for waits_for in [LockKind::Fair, LockKind::Semaphore { permits: 5 }] {
        let mut world = World::with(5);
        world.lock = as_kind(&world, waits_for);
        let (holder, waiter) = (world.asker(1, 1), world.asker(2, 1));
        if waits_for != LockKind::Fair {
            world.granted(&world.asker(3, 4));
        }
        world.granted(&holder);
        world.queued(&waiter);
        // The lock was deleted by hand, and no script has come since.
        world.server.query::<()>(&["DEL", super::support::NAME, super::support::HOLDS]);
        for other in [LockKind::Fair, LockKind::Semaphore { permits: 5 }, LockKind::ReadWrite] {
            if other == waits_for {
                continue;
            }
            for wait in [Wait::No, Wait::Forever] {
                let error = ask(&world.backend, &as_kind(&world, other), 1, wait).unwrap_err();
                assert_eq!(error.kind(), BackendErrorKind::Mismatch, "{waits_for:?}, {other:?}: {error}");
            }
        }
        // The waiter itself gets it.
        world.granted(&waiter);
    }
}

#[test]
fn a_waiter_of_another_kind_leaves_and_is_told_when_it_asks() {
    let mut world = World::with(5);
    let (dead, waiter, silent) = (world.asker(1, 5), world.asker(2, 3), world.asker(5, 3));
    world.granted(&dead);
    world.queued(&waiter);
    world.queued(&silent);
    // The holds end, and the queue is passed over: as after an operator has removed it for a while.
    world.end(&dead);
    let queue = "fairlock_queue:{pool}";
    let kept: Vec<u8> = world.server.query(&["DUMP", queue]);
    world.server.query::<()>(&["DEL", queue]);
    world.lock = as_kind(&world, LockKind::ReadWrite);
    let (newcomer, other) = (world.asker(3, u32::MAX - 4), world.asker(6, 4));
    let token = world.granted(&newcomer);
    world.granted(&other);
    redis::cmd("RESTORE").arg(queue).arg(0).arg(kept).exec(&mut world.server.con()).unwrap();
    world.lock = as_kind(&world, LockKind::Semaphore { permits: 5 });
    mismatch(world.ask(&waiter), ["a read-write lock", "you asked for a semaphore of 5"]);
    assert_eq!(world.heartbeat(&waiter), Renewal::Lost);
    world.leave(&waiter); // as a client does that was refused
    world.lock = as_kind(&world, LockKind::ReadWrite);
    let behind = world.asker(4, 1);
    world.queued(&behind);
    world.release(&newcomer, token);
    assert_eq!(world.holders(), [6, 4], "the silent one blocks nobody");
}
