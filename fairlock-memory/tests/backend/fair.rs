//! Fair locks: order, no barging, and absent waiters.

use crate::story::*;

#[test]
fn waiters_get_the_lock_in_the_order_in_which_they_asked() {
    let s = fair().a().gets().b().waits(0).c().waits(1).d().waits(2).a().releases().b().hears().releases();
    s.c().hears().releases().d().hears().releases().held_by(&[]);
}

/// Neither a newcomer nor an attempt without wait barges past the queue.
#[test]
fn neither_a_newcomer_nor_an_attempt_barges() {
    let s = fair().a().gets().b().waits(0).lose_hold().c().is_busy().held_by(&[B]).b().hears().lose_hold();
    s.c().gets().d().waits(0).lose_hold().a().waits(0).held_by(&[D]).d().hears();
}

#[test]
fn an_attempt_without_wait_leaves_nothing_behind() {
    let s = fair().a().gets().b().is_busy().looking_in(30 * S).queue(&[]).b().waits(0).is_busy().queue(&[]);
    s.a().releases().b().tries().lasting(30 * S);
}

/// The first in the queue rechecks when the hold would end and the others with their heartbeats.
#[test]
fn the_first_waiter_looks_when_the_hold_would_end() {
    let s = fair().a().gets().pass(10 * S).b().waits(0).looking_in(ms(20_001)).c().waits(1).looking_in(EVER);
    s.b().beats(0).looking_in(ms(20_001)).c().beats(1).looking_in(EVER);
}

/// A waiter looks when the hold ends unless its next heartbeat is not later.
#[test]
fn a_waiter_looks_at_the_end_or_with_its_heartbeat() {
    let s = fair().ttl(6 * S); // a heartbeat every two seconds
    s.a().gets().pass(28 * S).b().waits(0).looking_in(ms(2001)).c().of_client(1).waits(1).looking_in(EVER);
    // the next one gets it as soon as it is free
    s.pass(ms(1)).c().waits(1).looking_in(2 * S).pass(ms(1998)).b().waits(0).looking_in(ms(2));
}

/// A waiter that finds the lock free gets it by the answer and not by a message.
#[test]
fn a_waiter_that_finds_a_free_lock_gets_it_by_the_answer() {
    let s = fair().a().gets().b().waits(0).c().waits(1).lose_hold().b().beat_once().gets().lasting(5 * S);
    s.client(0).hears(NOTHING).b().releases().c().hears().keeps();
}

#[test]
fn an_overdue_waiter_is_passed_over_and_one_that_renews_is_not() {
    fair().a().gets().b().waits(0).c().waits(1).pass_with(5 * S, &[C]).a().releases().c().hears();
}

#[test]
fn when_all_waiters_are_absent_a_newcomer_gets_the_lock() {
    let s = fair().a().gets().b().of_client(1).waits(0).client(1).hangs_up().a().releases().held_by(&[]);
    s.c().tries().lasting(30 * S);
}

/// A waiter that asks gets the lock though its client is not subscribed. One call refreshes both, the later ticket first: the
/// order is that of the tickets.
#[test]
fn a_waiter_that_asks_needs_no_subscription() {
    let s = fair().a().gets().b().waits(0).c().waits(1).client(0).hangs_up().a().releases().held_by(&[]);
    s.beat(&[C, B], &["waits 0", "gets"]);
}

#[test]
fn a_process_that_was_stopped_finds_the_order_unchanged() {
    let s = fair().a().gets().b().waits(0).c().waits(1).d().waits(2).jump(20 * S).d().beats(2).a().releases();
    s.b().hears().c().beats(0).jump(60 * S).d().beats(0).c().hears();
}

/// A grant is valid for the rest of the place and never longer than the lease that was requested last.
#[test]
fn a_grant_is_valid_for_the_rest_of_the_place() {
    let s = fair().a().gets().b().waits(0).pass(2 * S).a().releases().b().hears().held_by(&[B]);
    s.b().has(3 * S, 1).renews(1).has(30 * S, 1);
    fair().a().gets().b().waits(0).lease(S).b().beats(0).a().releases().b().hears().has(S, 1);
}

#[test]
fn the_next_call_of_any_client_hands_an_expired_hold_on() {
    let looks: [fn(Story); 5] = [
        |s| _ = s.z().waits(0),
        |s| _ = s.z().is_busy(),
        |s| _ = s.z().leaves(),
        |s| _ = s.z().beat_once().gone(),
        |s| _ = s.force_finds_nothing(),
    ];
    for look in looks {
        let s = fair().a().gets().b().waits(0).pass_with(29 * S, &[B]).held_by(&[A]).pass(S);
        look(s.clone());
        s.b().hears().held_by(&[B]);
    }
}

#[test]
fn a_waiter_whose_client_hung_up_is_passed_over_at_once() {
    let s = fair().a().gets();
    (0..10).for_each(|rank| _ = s.by(&format!("dead {rank}")).of_client(1).waits(rank));
    s.c().waits(10).client(1).hangs_up().a().releases().c().hears();
}

/// B, which knows its ticket, was passed over, and c holds the lock before d.
fn passed_over() -> Story {
    let s = fair().a().gets().b().with_ticket().waits(0).beats(0).c().waits(1).d().waits(2);
    s.pass_with(5 * S, &[C, D]).a().releases().c().hears().story()
}

#[test]
fn an_absent_waiter_leaves_and_its_ask_puts_it_back() {
    let s = passed_over().queue(&[D]).b().beat_once().gone().waits(0).d().beats(1);
    s.c().releases().b().hears();
}

/// It is handed nothing by the call that puts it back, and so looks again at once.
#[test]
fn a_waiter_back_at_a_free_lock_gets_it_by_its_next_ask() {
    passed_over().d().leaves().c().releases().b().waits(0).looking_in(ms(0)).held_by(&[]).b().gets();
}

/// The first answer to b was lost, so b may not know its ticket.
#[test]
fn a_waiter_that_may_not_know_its_ticket_stays() {
    let passed = || {
        let s = fair().a().gets().b().waits(0).c().waits(1).d().waits(2).pass_with(5 * S, &[C, D]);
        s.a().releases().c().hears().renews(1).queue(&[B, D])
    };
    passed().pass_with(ms(4999), &[D]).b().waits(0).c().releases().b().hears();
    let s = passed().pass_with(ms(4999), &[D]).c().releases().d().hears().queue(&[B]);
    s.d().releases().held_by(&[]).b().gets();
    let s = passed().pass_with(5 * S, &[D]).queue(&[B, D]).c().releases().d().hears().queue(&[]);
    s.b().waits(0);
    let s = fair().a().gets().b().of_client(1).waits(0).c().waits(1).client(1).hangs_up();
    s.a().releases().c().hears().queue(&[B]).c().releases().held_by(&[]).b().gets();
}

/// The queue's clock moves by half of a place's time at most while no waiter is heard: its process may have stood still.
#[test]
fn calls_about_a_held_lock_make_no_waiter_overdue() {
    let s = fair().a().gets().b().waits(0);
    (0..10).for_each(|_| _ = s.pass(S).a().counts(1));
    s.a().releases().b().hears();
}

#[test]
fn inspect_shows_the_holder_and_the_queue() {
    let s = fair().a().gets().b().waits(0).pass(2 * S).c().waits(1).a().has(28 * S, 1).queue(&[B, C]);
    let state = s.seen();
    assert_eq!(state.holders[0].label.as_deref(), Some("a test"));
    let times = state.queue.iter().map(|waiter| (waiter.waiting.unwrap(), waiter.place_left.unwrap()));
    assert!(times.eq([(2 * S, 3 * S), (ms(0), 5 * S)]));
    assert_eq!(state.queue[0].label.as_deref(), Some("a test"));
}
