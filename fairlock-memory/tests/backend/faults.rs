//! The faults that tests inject.

use std::sync::Arc;
use std::thread;

use fairlock_core::LockKind;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendErrorKind, Place, Renewal, RequestId, Wait, Wake, WakeSink, Withdrawn,
    only,
};
use fairlock_memory::Operation;

use crate::support::*;

fn fair() -> World {
    World::of(LockKind::Fair)
}

#[track_caller]
fn fails<T: std::fmt::Debug>(answer: Answer<T>) {
    assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Unavailable);
}

/// Whether this client can subscribe.
fn subscribes(world: &World, client: usize) -> bool {
    struct Nothing;
    impl WakeSink for Nothing {
        fn wake(&self, _: Wake<'_>) {}
    }
    world.backend.subscribe(world.client(client), Arc::new(Nothing)).is_ok()
}

fn withdraw(world: &World, number: u64) -> Answer<Withdrawn> {
    let owner = world.owner(number);
    only(world.backend.withdraw(&[world.place(&owner, 1)]))
}

#[test]
fn a_call_that_is_made_to_fail_is_not_carried_out() {
    let world = fair();
    world.backend.faults().fail_next(Operation::Acquire, 2);
    for _ in 0..2 {
        fails(world.ask(1, 1, Wait::Forever));
        assert_eq!(world.seen().0, []);
    }
    world.granted(1, 1);
}

#[test]
fn a_renewal_fails_as_a_whole_with_one_answer_for_each_item() {
    let world = fair();
    world.granted(1, 1);
    [2, 3].iter().for_each(|number| _ = world.queued(*number, 1));
    world.backend.faults().fail_next(Operation::Renew, 1);
    let answers = world.beat(&[2, 3]);
    assert_eq!(answers.len(), 2);
    answers.into_iter().for_each(fails);
    let ranks = world.beat(&[2, 3]).into_iter().map(|answer| match answer.unwrap() {
        Renewal::Waiting { rank, .. } => rank,
        other => panic!("{other:?}"),
    });
    assert_eq!(ranks.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_renewal_finds_what_a_lost_wake_up_said() {
    let world = fair();
    let token = world.granted(1, 1);
    [2, 3].iter().for_each(|number| _ = world.queued(*number, 1));
    world.backend.faults().lose_wake_ups(1);
    world.releases(1, token);
    assert!(world.told(0).is_empty());
    let Ok(Renewal::Granted { token, .. }) = world.beat(&[2])[0] else { panic!() };
    world.releases(2, token);
    assert_eq!(world.told(0), ["granted 3"]);
}

#[test]
fn every_operation_can_be_made_to_fail() {
    use Operation::*;
    let world = fair();
    let hold = (1, world.granted(1, 1));
    let all = [Acquire, Release, Adopt, Renew, Withdraw, ForceRelease, Inspect, Subscribe];
    all.iter().for_each(|operation| world.backend.faults().fail_next(*operation, 1));
    fails(world.ask(1, 1, Wait::No));
    fails(world.release(hold.0, hold.1));
    fails(world.renew(hold.0, hold.1));
    fails(world.with_hold(hold, |backend, hold| backend.adopt(&hold, &world.owner(2), LEASE)));
    fails(withdraw(&world, 1));
    fails(world.backend.force_release(&world.lock));
    fails(world.backend.inspect(&world.lock, 0..0));
    assert!(!subscribes(&world, 0));
    assert_eq!(world.granted(1, 1), hold.1);
}

/// The answer to an attempt of the second client that is delayed by three seconds; `during` happens before it is carried out.
fn delayed(world: &World, during: impl FnOnce()) -> Answer<Acquired> {
    world.backend.faults().delay_next(Operation::Acquire, 1, 3 * S);
    let (backend, lock, owner) = (world.backend.clone(), world.lock.clone(), world.owner(OF_SECOND));
    let late = thread::spawn(move || {
        let mut place = Place::new(&lock, &owner, RequestId::new(OF_SECOND));
        place.wait = Wait::No;
        only(backend.acquire(&[Acquire::new(place, LEASE)]))
    });
    world.clock.wait_for_waiters(1);
    during();
    world.clock.advance(3 * S);
    late.join().unwrap()
}

#[test]
fn a_delayed_call_is_carried_out_after_its_delay() {
    let world = fair();
    let answer = delayed(&world, || _ = world.granted(2, 1));
    assert_eq!(answer.unwrap(), Acquired::Busy { recheck_in: LEASE - 3 * S });
}

#[test]
fn a_call_whose_client_is_cut_off_during_its_delay_fails() {
    let world = fair();
    fails(delayed(&world, || world.backend.faults().cut_off(world.client(1))));
    assert_eq!(world.seen().0, []);
}

/// A lost hold causes no wake up and the next call hands the lock on. A call about the hold hands nothing on; one about the queue
/// does.
#[test]
fn a_lost_hold_is_handed_on_by_the_next_call() {
    let world = fair();
    let token = world.granted(1, 1);
    world.queued(2, 1);
    ["another lock", ""].iter().for_each(|name| world.backend.faults().lose_hold(name));
    assert_eq!(world.seen().0, [1]);
    world.backend.faults().lose_hold("orders");
    assert_eq!((world.told(0).len(), world.seen()), (0, (vec![], vec![2])));
    assert_eq!(world.renew(1, token).unwrap(), Renewal::Lost);
    assert!(world.told(0).is_empty());
    withdraw(&world, 3).unwrap();
    assert_eq!(world.told(0), ["granted 2"]);
}

#[test]
fn a_client_that_is_cut_off_neither_calls_nor_gets_wake_ups() {
    let (world, other) = (fair(), OF_SECOND);
    world.backend.faults().bring_back(world.client(0));
    assert!(world.told(0).is_empty(), "no gap: it was not cut off");
    let token = world.granted(1, 1);
    world.queued(other, 1);
    world.queued(3, 1);
    world.backend.faults().cut_off(world.client(1));
    world.backend.faults().fail_next(Operation::Acquire, 1);
    fails(world.ask(other, 1, Wait::Forever));
    fails(world.beat(&[other]).remove(0));
    fails(withdraw(&world, other));
    assert!(!subscribes(&world, 1));
    fails(world.ask(1, 1, Wait::No)); // it was kept for a call that gets through
    assert_eq!(world.seen().1, [other, 3]);
    world.releases(1, token);
    assert_eq!((world.told(0), world.told(1).len()), (vec!["granted 3".to_owned()], 0));
    world.backend.faults().bring_back(world.client(1));
    assert_eq!(world.told(1), ["gap"]);
    assert!(matches!(world.beat(&[other])[0], Ok(Renewal::Waiting { rank: 0, .. })));
}
