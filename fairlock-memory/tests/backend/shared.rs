//! Semaphores and read-write locks: several holders, and a queue in which no request passes another.

use crate::story::*;

#[test]
fn readers_hold_together_and_a_writer_alone() {
    let s = read_write().a().gets().b().gets().held_by(&[A, B]).taken(2).w().units(ALL).waits(0);
    s.a().releases().held_by(&[B]).taken(1).b().releases().w().hears().held_by(&[W]).taken(ALL).d().is_busy();
    s.w().releases().d().gets();
}

#[test]
fn no_reader_passes_a_waiting_writer_not_even_an_attempt() {
    let s = read_write().a().gets().w().units(ALL).waits(0).c().is_busy().queue(&[W]).d().waits(1).waits(1);
    s.d().beats(1).a().releases().w().hears().queue(&[D]);
}

#[test]
fn readers_behind_a_writer_enter_together_up_to_the_next_writer() {
    let s = read_write().a().units(ALL).gets().b().of_client(1).waits(0).c().of_client(2).waits(1);
    s.w().of_client(3).units(ALL).waits(2).e().of_client(4).waits(3).a().releases().b().hears().c().hears();
    s.held_by(&[B, C]).taken(2).b().releases().c().releases().w().hears().queue(&[E]);
}

/// A release grants all that fit and stops at the first that does not.
#[test]
fn a_release_grants_all_up_to_the_first_that_does_not_fit() {
    let s = semaphore(5).a().units(5).gets().b().of_client(1).units(2).waits(0);
    // three are free, and the next wants four
    s.c().of_client(2).units(4).waits(1).d().of_client(3).waits(2).a().releases().b().hears().taken(2);
    s.client(3).hears(NOTHING).b().releases().c().hears().d().hears().held_by(&[C, D]).taken(5);
}

#[test]
fn there_are_never_more_holders_than_permits() {
    let s = semaphore(3).a().gets().b().gets().c().gets().d().waits(0).e().is_busy().b().releases();
    s.d().hears().held_by(&[A, C, D]).taken(3);
}

/// A newcomer that would fit does not pass a waiter that does not.
#[test]
fn a_newcomer_that_would_fit_passes_no_waiter() {
    semaphore(5).a().units(3).gets().b().units(3).waits(0).c().is_busy().waits(1).taken(3);
}

/// A repeated acquire has the same token and takes its units once.
#[test]
fn a_repeated_acquire_takes_its_units_once() {
    let s = semaphore(5).a().units(2).gets().b().units(2).gets().a().keeps().b().keeps().a().keeps();
    // also past a waiter: it holds them already
    s.held_by(&[A, B]).taken(4).c().units(2).waits(0).a().keeps();
    s.a().releases().c().hears().keeps().taken(4);
}

#[test]
fn a_waiter_that_gets_its_units_by_its_own_call_takes_them_once() {
    semaphore(5).a().units(5).gets().b().waits(0).lose_hold().b().gets().held_by(&[B]).taken(1);
}

#[test]
fn a_repeated_release_frees_nothing_twice() {
    let s = semaphore(2).a().gets().b().gets().c().waits(0).d().waits(1).a().releases().release().gone();
    s.b().naming(A).release().gone().c().hears().held_by(&[B, C]).taken(2).b().releases().d().hears();
    s.held_by(&[C, D]).taken(2);
}

#[test]
fn two_requests_of_one_owner_are_two_holds() {
    let s = semaphore(2).a().gets().a2().gets().taken(2).a().naming(A2).release().gone().releases();
    s.held_by(&[A2]);
}

#[test]
fn force_takes_all_holds_and_tells_each_holder() {
    let s = read_write().a().of_client(1).gets().b().of_client(1).gets().w().units(ALL).waits(0).forced();
    s.a().hears_taken().b().hears_taken().w().hears().held_by(&[W]).taken(ALL).a().release().gone();
}

#[test]
fn one_hold_is_taken_by_force_and_no_other() {
    let s = semaphore(2).a().gets().b().of_client(1).gets().c().waits(0).a().naming(B).take().gone();
    s.c().naming(A).take().gone().b().is_taken().hears_taken().held_by(&[A, C]).taken(2).c().hears();
    s.c().releases().b().gets(); // with another hold
    s.b().naming_its_first().take().gone().held_by(&[A, B]).taken(2);
}

/// One attempt takes the place of its request away.
#[test]
fn a_blocked_first_waiter_that_leaves_lets_the_others_in() {
    let blocked = || {
        let s = read_write().a().gets().w().units(ALL).waits(0).c().of_client(1).waits(1);
        s.d().of_client(1).waits(2).story()
    };
    for s in [blocked().w().leaves(), blocked().w().is_busy()] {
        s.held_by(&[A, C, D]).taken(3).queue(&[]).c().hears().d().hears();
    }
    let s = blocked().w().is_kicked().client(0).hears(RECHECK_OF_ONE).held_by(&[A, C, D]).queue(&[W]);
    s.c().hears().d().hears().w().waits(0);
}

#[test]
fn inspect_shows_all_holders_and_what_each_waiter_wants() {
    let s = semaphore(5);
    assert_eq!(s.seen().capacity, None);
    s.a().units(3).gets().b().gets().c().units(4).waits(0).b().counts(2).a().has(30 * S, 1);
    s.b().has(30 * S, 2).taken(4).held_by(&[A, B]).queue(&[C]);
    let state = s.seen();
    assert_eq!((state.capacity, state.queue_length, state.queue[0].units), (Some(5), 1, 4));
    s.a().releases().taken(5).c().hears();
}

#[test]
fn a_thousand_readers_enter_by_one_release() {
    let s = read_write().w().units(ALL).gets();
    let each = |does: fn(By, u64)| (0..1000).for_each(|n| does(s.by(&format!("reader {n}")), n));
    each(|reader, rank| _ = reader.waits(rank));
    s.w().releases();
    each(|reader, _| _ = reader.hears());
    s.taken(1000).queue(&[]).w().waits(0);
    each(|reader, _| _ = reader.releases());
    s.w().hears();
}

/// Each of many holders is counted by itself and told when it is forced out. More than are looked through one by one.
#[test]
fn each_of_many_holders_is_counted_and_told_by_itself() {
    let s = semaphore(100);
    let holder = |n: u32| s.by(&format!("holder {n}"));
    (0..100).for_each(|n| _ = holder(n).gets());
    holder(70).counts(3).has(30 * S, 3);
    holder(71).renews(2).has(30 * S, 2);
    assert_eq!(s.seen().holders.iter().map(|holder| holder.hold_count).sum::<u32>(), 103);
    s.forced();
    (0..100).for_each(|n| _ = holder(n).hears_taken());
}
