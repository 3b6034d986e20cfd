//! Waiters whose places are gone, but that know their tickets.

use crate::story::*;

/// They may ask in any order. A heartbeat puts none back: it may be later than the request's end.
#[test]
fn lost_places_are_restored_in_the_order_of_their_tickets() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().waits(1);
    s.d().with_ticket().waits(2).lose_queue().d().waits(0).e().waits(1).beat(&[C, B], &["gone", "gone"]);
    s.b().waits(0).c().waits(1).queue(&[B, C, D, E]).pass_with(5 * S, &[B, C, D, E]).a().releases();
    s.b().hears();
}

/// A queue that was lost with its hold is served in its former order. The first to ask does not get the lock: waiters that stood
/// ahead may be heard within a place's time.
#[test]
fn a_queue_lost_with_its_hold_keeps_its_order() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().of_client(1).waits(1).lose_queue();
    // the last moment of a living waiter
    s.lose_hold().c().waits(0).looking_in(5 * S).pass_with(ms(4999), &[C]).b().waits(0).looking_in(ms(1));
    s.d().of_client(1).waits(2).a().is_busy().held_by(&[]).pass(ms(1)).c().waits(0).b().hears();
}

/// Its process was stopped when its turn came.
#[test]
fn a_waiter_whose_grant_has_expired_is_served_next() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().waits(1);
    s.d().with_ticket().waits(2).a().releases().b().hears().pass_with(6 * S, &[C, D]).c().gets();
    s.b().beat_once().gone().waits(0).c().releases().b().hears();
}

/// A heartbeat that comes after the release of its hold leaves nothing. The heartbeat was sent before its client learnt of the
/// grant.
#[test]
fn a_heartbeat_after_the_release_leaves_nothing() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().waits(1).a().releases();
    s.b().hears().releases().c().hears().b().beat_once().gone().queue(&[]);
}

#[test]
fn a_heartbeat_that_comes_after_the_withdrawal_begins_nothing() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().waits(1).b().leaves();
    s.b().beat_once().gone().queue(&[C]).a().releases().c().hears().d().with_ticket().waits(0);
    s.e()
        .with_ticket()
        .waits(1)
        .lose_queue()
        .e()
        .leaves()
        .beat_once()
        .gone()
        .d()
        .beat_once()
        .gone()
        .queue(&[]);
    s.d().waits(0).queue(&[D]);
}

/// It hears of its new ticket when it looks. Its heartbeats name the old one until then, and are of no place.
#[test]
fn a_waiter_that_was_kicked_goes_to_the_tail_and_no_further() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().waits(1).b().is_kicked();
    s.client(0).hears(RECHECK_OF_ONE).queue(&[C, B]).d().waits(2).b().beat_once().gone().ask().waits_anew(1);
    s.b().beats(1).lose_queue(); // the new place is like any other
    s.b().waits(0).c().waits(0).queue(&[C, B]);
}

/// Not at its old ticket, which would undo the kick.
#[test]
fn a_kicked_waiter_that_is_absent_keeps_its_new_place() {
    let s = fair().a().gets().b().with_ticket().of_client(1).waits(0).beats(0).c().waits(1).b().is_kicked();
    s.client(1).hears(RECHECK_OF_ONE).client(1).hangs_up().a().releases().c().hears().d().waits(1);
    s.c().releases().d().hears().queue(&[B]).e().waits(1).b().ask().waits_anew(0).queue(&[B, E]);
}

/// A lost queue whose waiters are silent gives way to others that ask. Each of their calls is a heartbeat of the queue, whose clock
/// would stand still.
#[test]
fn a_lost_queue_of_silent_waiters_gives_way() {
    let s = fair().a().gets().b().with_ticket().waits(0).lose_queue().lose_hold();
    s.b().waits(0).looking_in(5 * S).pass(2 * S).c().is_busy().pass(2 * S).c().is_busy().pass(S).c().tries();
}

#[test]
fn a_waiter_that_was_granted_the_lock_is_kicked_no_more() {
    let s = fair().a().gets().b().with_ticket().waits(0).c().with_ticket().waits(1).d().waits(2);
    // its hold is over, and its ticket is still the first
    s.a().releases().b().hears().kick().holding().pass_with(6 * S, &[C, D]).c().gets().b().waits(0);
}

/// A queue that rests is looked at when a hold ends or it has rested. A waiter without a place would ask again and again without a
/// pause, since the lock is not held.
#[test]
fn a_queue_that_rests_is_looked_at_in_time() {
    fair().a().gets().b().with_ticket().waits(0).lose_queue().b().waits(0).looking_in(ms(30_001));
    let s = fair().a().gets().b().with_ticket().waits(0).lose_queue().a().releases();
    s.b().waits(0).looking_in(5 * S).as_plain().c().knocks().looking_in(5 * S);
}

#[test]
fn a_ticket_that_was_never_given_out_is_not_restored() {
    let s = fair().a().gets().b().with_ticket().waits(0);
    let given = s.ticket();
    for forged in [given + 1, given, u64::MAX] {
        s.c().forges(forged).beat_once().gone().waits(1).leaves();
    }
}
