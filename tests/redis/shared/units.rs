//! Queues longer than one script walks along, and one that no script has to.

use fairlock::admin::LockKind;
use fairlock::backend::{Renewal, Withdrawn};
use fairlock_tests::server_state::{all_calls, queue};

use super::support::{NAME, Told, World};

/// While no unit is free, a script does not walk along the queue: an entry without a place stays at its head until one is.
#[test]
fn the_queue_is_not_walked_while_no_unit_is_free() {
    let world = World::with(2);
    let [holder, other] = [1, 2].map(|number| world.asker(number, 1));
    let token = world.granted(&holder);
    world.granted(&other);
    let waiters: Vec<_> = (3..40).map(|number| world.asker(number, 1)).collect();
    for waiter in &waiters {
        world.queued(waiter);
    }
    let head = queue(&world.server, NAME).remove(0);
    world.server.query::<()>(&["HDEL", "fairlock_record:{pool}", &head]);
    let before = all_calls(&world.server);
    // One in the middle speaks, asks again, and leaves.
    assert!(matches!(world.heartbeat(&waiters[20]), Renewal::Waiting { .. }));
    assert_eq!(world.queued(&waiters[20]).0, 20);
    assert_eq!(world.leave(&waiters[20]), Withdrawn::Left);
    let after = all_calls(&world.server);
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    assert_eq!(queue(&world.server, NAME).remove(0), head, "a walk removes it");
    assert_eq!(calls("pubsub|numsub") + calls("pubsub"), 0);
    world.release(&holder, token);
    assert_eq!((world.holders(), queue(&world.server, NAME).len()), (vec![2, 4], 34));
}

/// Many waiters enter in parts, each of which tells the next to look.
#[test]
fn many_waiters_enter_in_parts_that_call_the_next() {
    let world = World::of(LockKind::ReadWrite);
    let writer = world.asker(1, u32::MAX);
    let readers: Vec<_> = (2..202).map(|number| world.asker(number, 1)).collect();
    let token = world.granted(&writer);
    readers.iter().for_each(|reader| _ = world.queued(reader));
    world.release(&writer, token);
    let mut entered = 0;
    while entered < readers.len() {
        match world.next_told() {
            Told::Granted(number, _) => {
                assert_eq!(number, entered as u64 + 2, "in order");
                entered += 1;
            }
            Told::Look(number) => {
                assert_eq!((number, entered % 64), (entered as u64 + 2, 0));
                world.granted(&readers[entered]);
                entered += 1;
                // The caller got its answer, and the others of its part are told.
                for _ in 0..63.min(readers.len() - entered) {
                    let Told::Granted(number, _) = world.next_told() else { panic!() };
                    assert_eq!(number, entered as u64 + 2);
                    entered += 1;
                }
            }
            Told::Taken(..) => panic!(),
        }
    }
    assert_eq!(world.queue(), []);
    assert_eq!(world.holders().len(), 200);
}

/// A newcomer between two parts goes on with the loop, and queues.
#[test]
fn a_newcomer_between_two_parts_goes_on_and_queues() {
    let world = World::of(LockKind::ReadWrite);
    let writer = world.asker(1, u32::MAX);
    let readers: Vec<_> = (2..72).map(|number| world.asker(number, 1)).collect();
    let token = world.granted(&writer);
    readers.iter().for_each(|reader| _ = world.queued(reader));
    world.queued(&world.asker(100, u32::MAX));
    world.release(&writer, token);
    assert_eq!(world.holders().len(), 64);
    // A reader that comes now does not pass the six readers and the writer ahead.
    assert_eq!(world.queued(&world.asker(101, 1)).0, 1);
    assert_eq!((world.holders().len(), world.queue()), (70, vec![100, 101]));
}

/// More absent waiters than one script examines do not stop a release.
#[test]
fn many_absent_waiters_do_not_stop_a_release() {
    let world = World::with(1);
    let (one, next) = (world.asker(1, 1), world.asker(999, 1));
    let token = world.granted(&one);
    (2..302).for_each(|number| _ = world.queued(&world.deaf(number, 1)));
    world.queued(&next);
    world.release(&one, token);
    assert_eq!(world.holders(), [999]);
}
