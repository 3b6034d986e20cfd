//! The faults that tests inject.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, BackendError, Hold, Place, RequestId, Wait, Wake, WakeSink,
};
use fairlock_memory::Operation;

use crate::story::{FAIR, Story, tell};

const LEASE: Duration = Duration::from_secs(30);

struct Nothing;

impl WakeSink for Nothing {
    fn wake(&self, _: Wake<'_>) {}
}

/// Whether this client can subscribe.
fn subscribes(story: &mut Story, client: &str) -> bool {
    let id = story.client(client).id;
    story.backend.subscribe(id, Arc::new(Nothing)).is_ok()
}

#[test]
fn a_call_that_is_made_to_fail_is_not_carried_out() {
    let fails = "a asks fails Unavailable; held by nobody;".repeat(2);
    tell(FAIR, &format!("fail acquire 2; {fails} a gets"));
}

stories! {
    fn a_renewal_fails_as_a_whole_with_one_answer_for_each_item() {
        FAIR "a gets; b waits 0; c waits 1; fail renew 1; b+c beat fails Unavailable fails Unavailable; b+c beat 0 1"
    }

    fn a_renewal_finds_what_a_lost_wake_up_said() {
        FAIR "a gets; b waits 0; c waits 1; lose message; a releases; client 0 hears nothing; b beats gets
        b releases; c hears"
    }

    fn a_client_that_was_not_cut_off_gets_no_gap() {
        FAIR "client 0 is-back"
    }
}

#[test]
fn every_operation_can_be_made_to_fail() {
    let mut story = Story::of(FAIR);
    story.tell(
        "a gets; fail acquire 1; fail count 1; fail release 1; fail renew 1; fail withdraw 1; fail force 1
         a tries fails Unavailable; a counts fails Unavailable; a releases fails Unavailable; a renews fails Unavailable
         a leaves fails Unavailable; force fails Unavailable",
    );
    for operation in [Operation::Keep, Operation::Inspect, Operation::Subscribe] {
        story.backend.faults().fail_next(operation, 1);
    }
    let (owner, token) = (OwnerId::new("c:1"), story.greatest.unwrap());
    let hold = Hold::new(&story.lock, &owner, RequestId::new(1), token);
    assert!(story.backend.keep(&hold, RequestId::new(9), LEASE).is_err());
    assert!(story.backend.inspect(&story.lock, 0..0).is_err());
    assert!(!subscribes(&mut story, "0"));
    story.tell("a keeps");
}

/// The answer to an attempt that is delayed by three seconds; `during` happens before it is carried out.
fn delayed(story: &mut Story, during: impl FnOnce(&mut Story)) -> Result<Acquired, BackendError> {
    let (backend, lock) = (story.backend.clone(), story.lock.clone());
    let owner = OwnerId::new(&format!("{}:late", story.client("1").id));
    story.backend.faults().delay_next(Operation::Acquire, 1, Duration::from_secs(3));
    let late = thread::spawn(move || {
        let mut place = Place::new(&lock, &owner, RequestId::new(99));
        place.wait = Wait::No;
        backend.acquire(&Acquire::new(place, LEASE))
    });
    story.clock.wait_for_waiters(1);
    during(story);
    story.tell("pass 3s");
    late.join().unwrap()
}

#[test]
fn a_delayed_call_is_carried_out_after_its_delay() {
    let mut story = Story::of(FAIR);
    let recheck_in = LEASE - Duration::from_secs(3);
    let answer = delayed(&mut story, |story| story.tell("b gets"));
    assert_eq!(answer.unwrap(), Acquired::Busy { recheck_in });
}

#[test]
fn a_call_whose_client_is_cut_off_during_its_delay_fails() {
    let mut story = Story::of(FAIR);
    assert!(delayed(&mut story, |story| story.tell("client 1 is-cut-off")).is_err());
    story.tell("held by nobody");
}

/// A call about the hold hands nothing on; one about the line does.
#[test]
fn a_lost_hold_causes_no_wake_up_and_the_next_call_hands_the_lock_on() {
    let mut story = Story::of(FAIR);
    story.tell("a gets; b waits 0");
    ["another lock", ""].iter().for_each(|name| story.backend.faults().lose_hold(name));
    story.tell("held by a; lose hold; client 0 hears nothing; held by nobody; line b; a renews gone");
    story.tell("client 0 hears nothing; c leaves; b hears");
}

#[test]
fn a_client_that_is_cut_off_neither_calls_nor_gets_wake_ups() {
    let mut story = Story::of(FAIR);
    story.tell(
        "a gets; b@1 waits 0; c waits 1; client 1 is-cut-off; fail acquire 1; b asks fails Unavailable
         b beats fails Unavailable; b leaves fails Unavailable",
    );
    assert!(!subscribes(&mut story, "1"));
    story.tell(
        "a asks fails Unavailable (it was kept for a call that gets through); line b c; a releases; c hears
         client 1 is-back; client 1 hears gap; b beats 0; c releases; b hears",
    );
    story.ends();
}

#[test]
fn a_granted_waiter_that_is_cut_off_keeps_the_lock_only_as_long_as_its_place() {
    let waits = "pass 1250ms; c beats 0;".repeat(3);
    tell(
        FAIR,
        &format!(
            "a gets; b@1 waits 0; c waits 1; a releases; b hears; client 1 is-cut-off; {waits} pass 1250ms; c beats gets
             client 1 is-back; client 1 hears gap; b leaves"
        ),
    );
}
