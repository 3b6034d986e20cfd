//! First come, first served by units: who fits, who waits, and who gets what is released.

use std::time::Duration;

use fairlock::backend::{Acquired, Backend, Released, Renewal, Wait, Withdrawn};
use fairlock::{FencingToken, LockKind};
use fairlock_tests::assert_no_residue;
use fairlock_tests::server_state::{all_calls, line, scripts_run};

use crate::support::{NAME, Told, World};

#[test]
fn a_large_request_is_not_passed_by_a_small_one_that_fits() {
    let world = World::with(3);
    let [two, large, small, once] = [(1, 2), (2, 2), (3, 1), (4, 1)].map(|(n, takes)| world.asker(n, takes));
    let token = world.granted(&two);
    assert_eq!(world.queued(&large).0, 0);
    assert_eq!(world.queued(&small).0, 1);
    assert!(matches!(world.try_once(&once).unwrap(), Acquired::Busy { .. }));
    assert_eq!((world.holders(), world.line()), (vec![1], vec![2, 3]));
    assert_eq!(world.release(&two, token), Released::Released);
    assert_eq!((world.holders(), world.line()), (vec![2, 3], vec![]));
}

#[test]
fn a_release_grants_all_at_the_head_that_fit_in_one_script() {
    let world = World::of(LockKind::ReadWrite);
    let all = u32::MAX;
    let takes = [all, 1, 1, all, 1];
    let askers: Vec<_> = (1..).zip(takes).map(|(number, takes)| world.asker(number, takes)).collect();
    let mut last = world.granted(&askers[0]);
    askers[1..].iter().for_each(|asker| _ = world.queued(asker));
    world.release(&askers[0], FencingToken::new(1)); // no hold of its; loads the script
    let before = scripts_run(&world.server);
    assert_eq!(world.release(&askers[0], last), Released::Released);
    assert_eq!(scripts_run(&world.server), before + 1);
    assert_eq!((world.holders(), world.line()), (vec![2, 3], vec![4, 5]));
    let mut tokens = Vec::new();
    for number in [2, 3] {
        let Told::Granted(told, token) = world.next_told() else { panic!() };
        assert!(told == number && token > last);
        (last, tokens) = (token, [tokens, vec![token]].concat());
    }
    world.release(&askers[2], tokens[1]);
    assert_eq!((world.holders(), world.line()), (vec![2], vec![4, 5]));
    world.release(&askers[1], tokens[0]);
    assert_eq!((world.holders(), world.line()), (vec![4], vec![5]));
    let Told::Granted(4, token) = world.next_told() else { panic!() };
    world.release(&askers[3], token);
    let Told::Granted(5, token) = world.next_told() else { panic!() };
    world.release(&askers[4], token);
    assert_no_residue(&world.server, &[]);
}

#[test]
fn repeats_take_units_once_and_free_them_once() {
    let world = World::with(3);
    let [two, one, next] = [(1, 2), (2, 1), (3, 1)].map(|(n, takes)| world.asker(n, takes));
    let token = world.granted(&two);
    assert_eq!(world.granted(&two), token);
    world.granted(&one);
    assert_eq!(world.queued(&next).0, 0);
    assert_eq!(world.queued(&next).0, 0);
    assert_eq!((world.holders(), world.line()), (vec![1, 2], vec![3]));
    assert_eq!(world.release(&two, token), Released::Released);
    assert_eq!(world.release(&two, token), Released::NotHeld);
    assert_eq!(world.holders(), [2, 3]);
    // The units that the repeat would have freed are those of the others.
    let large = world.asker(4, 2);
    assert_eq!(world.queued(&large).0, 0);
    // A new request of the same owner has its own hold.
    let again = world.asker(5, 1);
    assert_eq!(world.queued(&again).0, 1);
}

/// While no unit is free, a script does not walk along the line: an entry without a place stays at its head until one is.
#[test]
fn the_line_is_not_walked_while_no_unit_is_free() {
    let world = World::with(2);
    let [holder, other] = [1, 2].map(|number| world.asker(number, 1));
    let token = world.granted(&holder);
    world.granted(&other);
    let waiters: Vec<_> = (3..40).map(|number| world.asker(number, 1)).collect();
    for waiter in &waiters {
        world.queued(waiter);
    }
    let head = line(&world.server, NAME).remove(0);
    world.server.query::<()>(&["HDEL", "fairlock_record:{pool}", &head]);
    let before = all_calls(&world.server);
    // One in the middle speaks, asks again, and leaves.
    assert!(matches!(world.heartbeat(&waiters[20]), Renewal::Waiting { .. }));
    assert_eq!(world.queued(&waiters[20]).0, 20);
    assert_eq!(world.leave(&waiters[20]), Withdrawn::Left);
    let after = all_calls(&world.server);
    let calls = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    assert_eq!(line(&world.server, NAME).remove(0), head, "a walk removes it");
    assert_eq!(calls("pubsub|numsub") + calls("pubsub"), 0);
    world.release(&holder, token);
    assert_eq!((world.holders(), line(&world.server, NAME).len()), (vec![2, 4], 34));
}

#[test]
fn a_block_that_leaves_lets_the_others_in() {
    let world = World::with(2);
    let [one, large, small] = [(1, 1), (2, 2), (3, 1)].map(|(n, takes)| world.asker(n, takes));
    world.granted(&one);
    world.queued(&large);
    world.queued(&small);
    assert_eq!(world.leave(&large), Withdrawn::Left);
    assert_eq!((world.holders(), world.line()), (vec![1, 3], vec![]));
    assert_eq!(world.leave(&large), Withdrawn::Left);
    assert!(matches!(world.leave(&small), Withdrawn::WasGranted { .. }));
}

#[test]
fn a_block_that_an_operator_removes_is_not_put_back() {
    let world = World::with(2);
    let [one, large, small] = [(1, 1), (2, 2), (3, 1)].map(|(n, takes)| world.asker(n, takes));
    world.granted(&one);
    let Acquired::Queued { ticket, .. } = world.ask(&large).unwrap() else { panic!() };
    world.queued(&small);
    assert_eq!(world.backend.kick(&world.place(&large, Wait::Forever)).unwrap(), Withdrawn::Left);
    assert_eq!(world.holders(), [1, 3]);
    let mut place = world.place(&large, Wait::Forever);
    place.ticket = ticket;
    let item = fairlock::backend::Renew::Place { place, lease: large.lease };
    assert_eq!(world.backend.renew(world.client, &[item]).remove(0).unwrap(), Renewal::Lost);
    assert_eq!(world.line(), []);
}

#[test]
fn a_waiter_that_is_parked_keeps_its_units_and_its_place() {
    let world = World::with(3);
    let mut large = world.asker(2, 3);
    large.ttl = Duration::from_millis(400);
    let (one, mut small) = (world.asker(1, 1), world.asker(3, 1));
    small.ttl = large.ttl;
    let token = world.granted(&one);
    world.queued(&large);
    world.queued(&small);
    // The large one is silent for a place's time; heartbeats of the other park it and let the other in.
    fairlock_tests::eventually(Duration::from_secs(10), "it counts as absent", || {
        matches!(world.heartbeat(&small), Renewal::Granted { .. })
    });
    assert_eq!((world.holders(), world.line()), (vec![1, 3], vec![2]));
    let last = world.asker(4, 2);
    assert_eq!(world.queued(&last).0, 0);
    // It comes back ahead of the newcomer, and its three units are not free.
    assert!(matches!(world.heartbeat(&large), Renewal::Waiting { rank: 0, .. }));
    world.release(&one, token);
    assert_eq!((world.holders(), world.line()), (vec![3], vec![2, 4]));
    assert_eq!(world.backend.inspect(&world.lock, 0..9).unwrap().line[0].takes, 3);
}

#[test]
fn a_block_that_does_not_listen_stays_for_half_a_place() {
    let world = World::with(2);
    let (one, mut large, small) = (world.asker(1, 1), world.deaf(2, 2), world.asker(3, 1));
    large.ttl = Duration::from_secs(4);
    world.granted(&one);
    world.queued(&large);
    let start = std::time::Instant::now();
    assert_eq!(world.queued(&small).0, 1, "its subscription may be on its way");
    fairlock_tests::eventually(Duration::from_secs(10), "it counts as absent", || {
        matches!(world.heartbeat(&small), Renewal::Granted { .. })
    });
    let took = start.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_millis(3900), "{took:?}");
}

#[test]
fn a_deaf_waiter_that_would_fit_is_passed_over_at_once() {
    let world = World::with(1);
    let (one, deaf, next) = (world.asker(1, 1), world.deaf(2, 1), world.asker(3, 1));
    let token = world.granted(&one);
    world.queued(&deaf);
    world.queued(&next);
    world.release(&one, token);
    assert_eq!((world.holders(), world.line()), (vec![3], vec![2]));
}

#[test]
fn many_waiters_enter_in_parts_each_of_which_tells_the_next_to_look() {
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
    assert_eq!(world.line(), []);
    assert_eq!(world.holders().len(), 200);
}

#[test]
fn a_newcomer_between_two_parts_goes_on_with_the_loop_and_queues() {
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
    assert_eq!((world.holders().len(), world.line()), (70, vec![100, 101]));
}

#[test]
fn more_absent_waiters_than_one_script_examines_do_not_stop_a_release() {
    let world = World::with(1);
    let (one, next) = (world.asker(1, 1), world.asker(999, 1));
    let token = world.granted(&one);
    (2..302).for_each(|number| _ = world.queued(&world.deaf(number, 1)));
    world.queued(&next);
    world.release(&one, token);
    assert_eq!(world.holders(), [999]);
}
