//! Leases end by themselves, and that alone moves the line.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::{Error, LockKind};

use crate::world::{SLACK, SOON, World, worlds};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Redisson: `testLeaseTimeout`.
#[test]
fn expiring_leases_hand_the_lock_on_in_order_without_any_unlock() {
    worlds().for_each(|world| eight_holders_without_an_unlock(&world));
}

fn eight_holders_without_an_unlock(world: &World) {
    const WAITERS: u32 = 8;
    let lease = ms(500);
    let starter = world.lock("expiry");
    let guard = starter.lock().unwrap();
    let (grants, granted) = mpsc::channel();
    let started = thread::scope(|scope| {
        for number in 0..WAITERS {
            let (theirs, grants) = (world.lock("expiry").fixed_lease(lease), grants.clone());
            scope.spawn(move || {
                let guard = theirs.try_lock_for(SOON).unwrap().guard().expect("in time");
                grants.send((guard.token(), number, world.now())).unwrap();
                guard.leak();
            });
            world.until_waiting("expiry", number as usize + 1);
        }
        let started = world.now();
        guard.unlock().unwrap();
        world.time_for_others(lease * (WAITERS + 1));
        started
    });
    // In the order of the grants: on a busy machine a thread may report a timely grant late.
    let mut grants: Vec<_> = granted.try_iter().collect();
    grants.sort_by_key(|(token, ..)| *token);
    let took = grants.last().unwrap().2 - started;
    // A server counts whole milliseconds. In virtual time, the clock may have reached its target before it is read.
    let longest = (lease * WAITERS + SLACK * 4).max(lease * (WAITERS + 1));
    assert!(took + ms(20) >= lease * (WAITERS - 1) && took <= longest, "{took:?}");
    let mut order: Vec<_> = grants.iter().map(|(_, number, _)| *number).collect();
    if world.kind == LockKind::Plain {
        order.sort_unstable();
    }
    assert_eq!(order, (0..WAITERS).collect::<Vec<_>>());
    world.pass(lease + SLACK);
    world.assert_no_residue("expiry");
}

/// Redisson: `testRemainTimeToLive2`.
#[test]
fn an_inner_unlock_keeps_the_end_of_the_outermost_lease() {
    for world in worlds() {
        let lease = ms(1000);
        let ours = world.lock_of(&world.client_with(SOON), "nested");
        let fixed = ours.fixed_lease(lease);
        let outer = fixed.lock().unwrap();
        let (middle, inner) = (fixed.lock().unwrap(), ours.lock().unwrap());
        world.pass(ms(300));
        inner.unlock().unwrap();
        middle.unlock().unwrap();
        assert_eq!(ours.hold_count(), 1);
        let left = ours.inspect().unwrap().holder().unwrap().lease_left.unwrap();
        assert!(left > Duration::ZERO && left <= ms(700), "{left:?}");
        world.pass(ms(750));
        assert!(outer.is_lost() && ours.hold_count() == 0);
        world.lock("nested").try_lock().unwrap().guard().expect("nothing prolonged it").unlock().unwrap();
        assert!(matches!(outer.unlock(), Err(Error::Lost(_))));
        world.assert_no_residue("nested");
    }
}
