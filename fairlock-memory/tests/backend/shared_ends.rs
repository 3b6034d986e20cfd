//! Semaphores and read-write locks: holds that end, waiters that are absent, and who looks when.

use crate::story::*;

#[test]
fn each_hold_has_an_end_of_its_own() {
    // the renewal raised one end only
    let s = semaphore(3).a().gets().pass(10 * S).b().gets().renews(1).pass(20 * S).held_by(&[B]);
    s.taken(1).a().renew(1).gone(); // what is over is not renewed
    s.a().release().gone().c().gets().held_by(&[B, C]).taken(2);
}

/// The first in the queue and the first of each client look at the earliest end. Not when enough of them would be over: a live holder
/// may release before that.
#[test]
fn the_first_of_each_client_look_at_the_earliest_end() {
    let s = read_write().a().gets().pass(10 * S).b().gets().w().units(ALL).waits(0).looking_in(ms(20_001));
    s.t().of_client(1).waits(1).looking_in(EVER); // its next heartbeat is earlier
    s.pass_with(19 * S, &[W, T]).w().waits(0).looking_in(ms(1001)).t().waits(1).looking_in(ms(1001));
    s.b().releases().w().waits(0).looking_in(ms(1001)).pass(S).w().gets().n().waits(1);
}

#[test]
fn a_dead_reader_delays_a_writer_by_its_lease_and_no_longer() {
    let s = read_write().a().gets().b().gets().w().units(ALL).waits(0).b().releases();
    s.pass_with(ms(29_999), &[W]).w().waits(0).looking_in(ms(50)); // it does not look more often
    s.pass(ms(1)).w().gets();
}

/// A blocking first waiter that is silent is passed over by a heartbeat of another.
#[test]
fn a_silent_blocking_waiter_is_passed_over_by_a_heartbeat() {
    let s = read_write().a().gets().w().units(ALL).waits(0).c().waits(1).pass_with(ms(4999), &[C]).taken(1);
    s.pass(ms(1)).c().beat_once().gets().lasting(5 * S).held_by(&[A, C]).taken(2);
}

/// A blocking first waiter whose client hung up is passed over after half a place. While it fits, a waiter without a subscription
/// is passed over at once. One that does not fit would lose its turn to any number of small requests while its client connects
/// anew.
#[test]
fn a_deaf_blocking_waiter_is_passed_over_after_half_a_place() {
    let s = semaphore(3).a().gets().l().of_client(1).units(3).waits(0).b().waits(1).client(1).hangs_up();
    s.c().is_busy().pass_with(ms(2499), &[B]).c().is_busy().pass(ms(1)).c().tries(); // behind the waiter
    s.b().hears_late().held_by(&[A, B, C]).taken(3);
}

/// A waiter that fits and whose client hung up is passed over at once.
#[test]
fn a_deaf_waiter_that_fits_is_passed_over_at_once() {
    let s = semaphore(2).a().gets().b().gets().d().of_client(1).waits(0).c().waits(1).client(1).hangs_up();
    s.a().releases().held_by(&[B, C]).c().hears();
}

/// A blocking waiter that comes back stands at its ticket and those that entered stay.
#[test]
fn a_blocking_waiter_comes_back_to_its_ticket() {
    let s = semaphore(3).a().gets().l().units(3).waits(0).c().waits(1).d().units(2).waits(2);
    // two are free, and the first wants three
    s.pass_with(5 * S, &[C, D]).held_by(&[A, C]).taken(2).l().beats(0).a().releases().held_by(&[C]);
    s.queue(&[L, D]).c().gets().releases().l().hears().held_by(&[L]);
}

#[test]
fn a_silent_blocker_leaves_by_a_try_that_does_not_fit() {
    let s = semaphore(2).a().gets().o().with_ticket().of_client(1).units(2).waits(0).beats(0);
    s.client(1).hangs_up().pass(ms(2499)).z().units(2).is_busy().queue(&[O]).pass(ms(1)).z().is_busy();
    s.queue(&[]).o().waits(0);
}

/// A lost grant is found by a heartbeat and lasts as long as its place. Only one of several pushed grants is lost.
#[test]
fn a_lost_grant_is_found_by_a_heartbeat() {
    let s = semaphore(2).a().units(2).gets().b().waits(0).c().waits(1).pass(S).lose_message().a().releases();
    s.c().hears().b().beat_once().finds().lasting(4 * S).keeps().taken(2);
}

/// A queue that was lost beside free units is served in its former order.
#[test]
fn a_lost_queue_beside_free_units_keeps_its_order() {
    let s = semaphore(3).a().units(2).gets().b().with_ticket().units(3).waits(0).c().with_ticket().waits(1);
    s.lose_queue().c().waits(0).looking_in(5 * S); // the waiters ahead have so long to come back
    s.d().is_busy().b().waits(0).pass_with(5 * S, &[B, C]).held_by(&[A]).taken(2).n().of_client(1).waits(2);
    s.queue(&[B, C, N]);
}

/// Each call but a holder's own that finds a hold over hands its units on.
#[test]
fn each_call_that_finds_a_hold_over_hands_its_units_on() {
    let looks: [fn(&Story); 7] = [
        |s| _ = s.z().waits(0),
        |s| _ = s.z().is_busy(),
        |s| _ = s.z().leaves(),
        |s| _ = s.z().beat_once().gone(),
        |s| _ = s.a().counts(2),
        |s| _ = s.z().naming(A).release().gone(),
        |s| _ = s.z().naming(A).take().gone(),
    ];
    for look in looks {
        let s = semaphore(3).d().units(2).gets().pass(15 * S).a().gets().w().of_client(1).units(2).waits(0);
        look(&s.pass_with(14 * S, &[W]).taken(3).pass(S));
        s.w().hears().held_by(&[A, W]).taken(3);
    }
}
