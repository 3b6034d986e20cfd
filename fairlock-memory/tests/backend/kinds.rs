//! The kinds of one name, and requests that no lock could grant.

use fairlock_core::LockKind;
use fairlock_core::LockKind::{Fair as FAIR, Plain as PLAIN, ReadWrite as READ_WRITE};
use fairlock_core::backend::BackendErrorKind::{InvalidConfig, Mismatch};
use fairlock_core::backend::{Backend, Wait};

use crate::story::*;

const SEMAPHORE_OF_5: LockKind = LockKind::Semaphore { permits: 5 };
const EIGHT: LockKind = LockKind::Semaphore { permits: 8 };
const ONE: LockKind = LockKind::Semaphore { permits: 1 };

#[test]
fn the_backend_keeps_all_kinds() {
    for kind in [FAIR, PLAIN, READ_WRITE, SEMAPHORE_OF_5] {
        assert!(Story::of(kind).backend.supports(kind), "{kind}");
    }
}

/// A name that is held as another kind is refused with both kinds.
#[test]
fn a_name_held_as_another_kind_is_refused_with_both() {
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
        let s = Story::of(kind).a().gets().as_kind(asked);
        let mut errors = [Wait::Forever, Wait::No].map(|wait| s.b().acquire(wait).unwrap_err()).to_vec();
        errors.push(s.backend.force_release(&s.lock()).unwrap_err());
        match s.backend.inspect(&s.lock(), 0..100) {
            Ok(state) => {
                assert!(kind.capacity() > 1 && asked.capacity() > 1);
                assert_eq!(state.capacity, Some(kind.capacity()));
            }
            Err(error) => errors.push(error),
        }
        for error in errors {
            assert_eq!(error.kind(), Mismatch);
            assert_eq!(error.message(), format!("it is {is}, and you asked for {asks}: {remedy}"));
        }
        s.b()
            .beat_once()
            .gone()
            .leaves()
            .naming(A)
            .release()
            .gone()
            .as_kind(kind)
            .a()
            .has(30 * S, 1)
            .queue(&[]);
    }
}

/// The one that asks for it as another kind finds the first waiter in the queue, and makes it the holder.
#[test]
fn a_name_that_is_waited_for_as_another_kind_is_refused() {
    let s = semaphore(5).a().units(5).gets().b().waits(0).lose_hold().as_semaphore(8);
    s.c().ask().fails(Mismatch).as_semaphore(5).b().hears();
}

/// Absent waiters keep no name and hear of the new kind when they come back.
#[test]
fn absent_waiters_keep_no_name() {
    let s = semaphore(8).a().units(8).gets().d().with_ticket().of_client(1).units(7).waits(0);
    s.client(1).hangs_up().a().releases().as_semaphore(5).c().units(5).gets().as_semaphore(8);
    s.d().beat_once().gone().ask().fails(Mismatch).as_semaphore(5).c().releases().taken(0);
    s.as_semaphore(8).d().beat_once().gone().waits(0).looking_in(ms(0)).gets();
}

/// An absent waiter is granted nothing of the new kind before it asks. It would get seven units of five.
#[test]
fn an_absent_waiter_is_granted_nothing_of_the_new_kind() {
    let s = semaphore(8).a().units(8).gets().d().of_client(1).units(7).waits(0).client(1).is_cut_off();
    s.lose_hold().as_semaphore(5).c().units(5).gets().client(1).is_back().client(1).hears(GAP).c().releases();
    s.taken(0).e().units(5).gets();
}

#[test]
fn plain_waiters_keep_the_name_while_they_are_heard() {
    let s = plain().a().gets().b().knocks().lose_hold().as_semaphore(5);
    s.c().try_once().fails(Mismatch).pass(5 * S).c().gets();
}

#[test]
fn one_request_for_too_many_units_leaves_the_queue_as_it_is() {
    let s = semaphore(2).a().gets().b().units(2).waits(0);
    s.c().units(3).ask().fails(InvalidConfig).queue(&[B]);
}

#[test]
fn force_on_an_idle_name_takes_nothing() {
    let s = semaphore(2).as_semaphore(8).force_finds_nothing().as_semaphore(2).a().tries();
    s.as_semaphore(8).force_fails(Mismatch);
}

#[test]
fn an_idle_name_takes_the_kind_of_the_next_request() {
    let s = fair();
    for kind in [FAIR, SEMAPHORE_OF_5, EIGHT, READ_WRITE, PLAIN, ONE] {
        s.as_kind(kind).a().gets();
        assert_eq!(s.seen().capacity.unwrap_or(1), kind.capacity());
        s.a().releases();
        assert_eq!(s.seen().capacity, None);
    }
    s.b().gets().pass(30 * S).as_kind(EIGHT).c().units(8).gets(); // so does one whose last hold has ended
}

/// A request for no units or too many is refused and leaves nothing.
#[test]
fn a_request_for_no_units_or_too_many_leaves_nothing() {
    for (kind, too_many) in
        [(FAIR, 2), (PLAIN, 2), (SEMAPHORE_OF_5, 6), (LockKind::Semaphore { permits: 0 }, 1)]
    {
        let s = Story::of(kind);
        for units in [0, too_many, u32::MAX] {
            let asks = s.by(&format!("for {units}")).units(units);
            for wait in [Wait::No, Wait::Forever] {
                let error = asks.acquire(wait).unwrap_err();
                assert_eq!(error.kind(), InvalidConfig);
                let message = format!("a request for {units} units of what is a {kind}");
                assert_eq!(error.message(), message);
            }
            asks.beat_once().gone().held_by(&[]).queue(&[]);
        }
    }
}
