//! The kinds of one name, and requests that no lock could grant.

use fairlock_core::LockKind;
use fairlock_core::backend::{Backend, BackendErrorKind, Wait};

use crate::story::{FAIR, PLAIN, READ_WRITE, SEMAPHORE_OF_2, SEMAPHORE_OF_5, Story};

const EIGHT: LockKind = LockKind::Semaphore { permits: 8 };
const ONE: LockKind = LockKind::Semaphore { permits: 1 };

#[test]
fn the_backend_keeps_all_kinds() {
    for kind in [FAIR, PLAIN, READ_WRITE, SEMAPHORE_OF_5] {
        assert!(Story::of(kind).backend.keeps(kind), "{kind}");
    }
}

#[test]
fn a_name_that_is_held_as_another_kind_is_refused_with_both_kinds() {
    let (number, other) =
        ("all clients name the same number; for another one use a new name", "use another name");
    for (kind, is, asked, asks, remedy) in [
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", EIGHT, "8", number),
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", ONE, "1", number),
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", READ_WRITE, "a read-write lock", other),
        (SEMAPHORE_OF_5, "a semaphore of 5 permits", FAIR, "an exclusive lock", other),
        (READ_WRITE, "a read-write lock", PLAIN, "an exclusive lock", other),
        (READ_WRITE, "a read-write lock", ONE, "a semaphore of 1 permit", other),
        (FAIR, "an exclusive lock", SEMAPHORE_OF_5, "a semaphore of 5 permits", other),
    ] {
        let mut story = Story::of(kind);
        story.tell("a gets");
        story.lock.kind = asked;
        let mut errors = [Wait::Forever, Wait::No].map(|wait| story.refused("b", wait)).to_vec();
        errors.push(story.backend.force_release(&story.lock).unwrap_err());
        match story.backend.inspect(&story.lock, 0..100) {
            Ok(state) => {
                assert!(kind.capacity() > 1 && asked.capacity() > 1);
                assert_eq!(state.capacity, Some(kind.capacity()));
            }
            Err(error) => errors.push(error),
        }
        for error in errors {
            assert_eq!(error.kind(), BackendErrorKind::Mismatch);
            assert_eq!(error.message(), format!("it is {is}, and you asked for {asks}: {remedy}"));
        }
        story.tell("b beats gone; b leaves; b=a releases gone");
        story.lock.kind = kind;
        story.tell("a has 30s; line nobody");
    }
}

stories! {
    /// The one that asks for it as another kind finds the first waiter in line, and makes it the holder.
    fn a_name_that_is_waited_for_as_another_kind_is_refused() {
        SEMAPHORE_OF_5 "a*5 gets; b waits 0; lose hold; as 8; c asks fails Mismatch; as 5; b hears"
    }

    fn absent_waiters_keep_no_name_and_hear_of_the_new_kind_when_they_come_back() {
        EIGHT "a*8 gets; D@1*7 waits 0; client 1 hangs-up; a releases; as 5; c*5 gets; as 8; D beats gone
        D asks fails Mismatch; as 5; c releases; taken 0; as 8; D beats gone; D waits 0 0s; D gets"
    }

    /// It would get seven units of five.
    fn an_absent_waiter_is_granted_nothing_of_the_new_kind_before_it_asks() {
        EIGHT "a*8 gets; d@1*7 waits 0; client 1 is-cut-off; lose hold; as 5; c*5 gets; client 1 is-back
        client 1 hears gap; c releases; taken 0; e*5 gets"
    }

    fn plain_waiters_keep_the_name_while_they_are_heard() {
        PLAIN "a gets; b knocks; lose hold; as 5; c tries fails Mismatch; pass 5s; c gets"
    }

    fn one_request_for_too_many_units_leaves_the_line_as_it_is() {
        SEMAPHORE_OF_2 "a gets; b*2 waits 0; c*3 asks fails InvalidConfig; line b"
    }

    fn force_on_an_idle_name_takes_nothing() {
        SEMAPHORE_OF_2 "as 8; force nothing; as 2; a tries; as 8; force fails Mismatch"
    }
}

#[test]
fn an_idle_name_takes_the_kind_of_the_next_request() {
    let mut story = Story::of(FAIR);
    for kind in [FAIR, SEMAPHORE_OF_5, EIGHT, READ_WRITE, PLAIN, ONE] {
        story.lock.kind = kind;
        story.tell("a gets");
        assert_eq!(story.seen().capacity.unwrap_or(1), kind.capacity());
        story.tell("a releases");
        assert_eq!(story.seen().capacity, None);
    }
    story.tell("b gets; pass 30s (so does one whose last hold has ended); as 8; c*8 gets");
}

#[test]
fn a_request_for_no_units_or_too_many_is_refused_and_leaves_nothing() {
    for (kind, too_many) in
        [(FAIR, 2), (PLAIN, 2), (SEMAPHORE_OF_5, 6), (LockKind::Semaphore { permits: 0 }, 1)]
    {
        let mut story = Story::of(kind);
        for takes in [0, too_many, u32::MAX] {
            for wait in [Wait::No, Wait::Forever] {
                let error = story.refused(&format!("a{takes}*{takes}"), wait);
                assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
                let message = format!("a request for {takes} units of what is a {kind}");
                assert_eq!(error.message(), message);
            }
            story.tell(&format!("a{takes} beats gone; held by nobody; line nobody"));
        }
    }
}
