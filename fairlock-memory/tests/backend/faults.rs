//! The faults that tests inject.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::BackendErrorKind::Unavailable;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Place, RequestId, Wait, Wake, WakeSink, only,
};
use fairlock_memory::Operation;

use crate::story::*;

const LEASE: Duration = Duration::from_secs(30);

struct Nothing;

impl WakeSink for Nothing {
    fn wake(&self, _: Wake<'_>) {}
}

/// Whether this client can subscribe.
fn subscribes(story: &Story, client: usize) -> bool {
    story.backend.subscribe(story.client_id(client), Arc::new(Nothing)).is_ok()
}

#[test]
fn a_call_that_is_made_to_fail_is_not_carried_out() {
    let s = fair().fail(Operation::Acquire, 2);
    (0..2).for_each(|_| _ = s.a().ask().fails(Unavailable).held_by(&[]));
    s.a().gets();
}

#[test]
fn a_renewal_fails_as_a_whole_with_one_answer_for_each_item() {
    let s = fair().a().gets().b().waits(0).c().waits(1).fail(Operation::Renew, 1);
    s.beat(&[B, C], &["fails Unavailable", "fails Unavailable"]).beat(&[B, C], &["waits 0", "waits 1"]);
}

#[test]
fn a_renewal_finds_what_a_lost_wake_up_said() {
    let s = fair().a().gets().b().waits(0).c().waits(1).lose_message().a().releases();
    s.client(0).hears(NOTHING).b().beat_once().gets().releases().c().hears();
}

#[test]
fn a_client_that_was_not_cut_off_gets_no_gap() {
    fair().client(0).is_back();
}

#[test]
fn every_operation_can_be_made_to_fail() {
    use Operation::*;
    let s = fair().a().gets();
    for operation in [Acquire, SetHoldCount, Release, Renew, Withdraw, ForceRelease, Keep, Inspect, Subscribe]
    {
        s.fail(operation, 1);
    }
    s.try_once().fails(Unavailable).count(1).fails(Unavailable).release().fails(Unavailable);
    s.renew(1).fails(Unavailable).leave().fails(Unavailable).force_fails(Unavailable);
    assert!(s.keep(S).is_err());
    assert!(s.backend.inspect(&s.lock(), 0..0).is_err());
    assert!(!subscribes(&s, 0));
    s.keeps();
}

/// The answer to an attempt that is delayed by three seconds; `during` happens before it is carried out.
fn delayed(story: &Story, during: impl FnOnce(&Story)) -> Result<Acquired, BackendError> {
    let (backend, lock) = (story.backend.clone(), story.lock());
    let owner = OwnerId::new(&format!("{}:late", story.client_id(1)));
    story.backend.faults().delay_next(Operation::Acquire, 1, 3 * S);
    let late = thread::spawn(move || {
        let mut place = Place::new(&lock, &owner, RequestId::new(99));
        place.wait = Wait::No;
        only(backend.acquire(&[Acquire::new(place, LEASE)]))
    });
    story.clock.wait_for_waiters(1);
    during(story);
    story.pass(3 * S);
    late.join().unwrap()
}

#[test]
fn a_delayed_call_is_carried_out_after_its_delay() {
    let answer = delayed(&fair(), |s| _ = s.b().gets());
    assert_eq!(answer.unwrap(), Acquired::Busy { recheck_in: LEASE - 3 * S });
}

#[test]
fn a_call_whose_client_is_cut_off_during_its_delay_fails() {
    let s = fair();
    assert!(delayed(&s, |s| _ = s.client(1).is_cut_off()).is_err());
    s.held_by(&[]);
}

/// A lost hold causes no wake up and the next call hands the lock on. A call about the hold hands nothing on; one about the queue
/// does.
#[test]
fn a_lost_hold_is_handed_on_by_the_next_call() {
    let s = fair().a().gets().b().waits(0);
    ["another lock", ""].iter().for_each(|name| s.backend.faults().lose_hold(name));
    s.held_by(&[A]).lose_hold().client(0).hears(NOTHING).held_by(&[]).queue(&[B]).a().renew(1).gone();
    s.client(0).hears(NOTHING).c().leaves().b().hears();
}

#[test]
fn a_client_that_is_cut_off_neither_calls_nor_gets_wake_ups() {
    let s = fair().a().gets().b().of_client(1).waits(0).c().waits(1).client(1).is_cut_off();
    s.fail(Operation::Acquire, 1).b().ask().fails(Unavailable).beat_once().fails(Unavailable);
    s.b().leave().fails(Unavailable);
    assert!(!subscribes(&s, 1));
    s.a().ask().fails(Unavailable); // it was kept for a call that gets through
    s.queue(&[B, C]).a().releases().c().hears().client(1).is_back().client(1).hears(GAP).b().beats(0);
    s.c().releases().b().hears();
}

/// A granted waiter that is cut off keeps the lock only as long as its place.
#[test]
fn a_grant_to_a_waiter_that_is_cut_off_ends_with_its_place() {
    let s = fair().a().gets().b().of_client(1).waits(0).c().waits(1).a().releases().b().hears();
    s.client(1).is_cut_off();
    (0..3).for_each(|_| _ = s.pass(ms(1250)).c().beats(0));
    s.pass(ms(1250)).c().beat_once().gets().client(1).is_back().client(1).hears(GAP).b().leaves();
}
