//! The end of a client: what it tells its callers, what it tells the server, and how long it takes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use super::logger::lines_of_this_thread;
use super::scene::{Scene, THREADS, UNWATCHED, play, scenes};
use super::store::Op;
use super::support::{OUTAGE, S, World, ms};
use crate::{Error, LostCause};

scenes! {
    fn a_withdrawal_goes_after_an_ask_that_is_under_way() {
        THREADS "acquire takes 1s; acquire says down; a locks; x shuts-down; a fails Shutdown; x done 1s; at withdraw 1s"
    }

    /// A heartbeat puts back a place that is gone. The watchdog may withdraw the request as well as the shutdown.
    fn a_withdrawal_goes_after_a_heartbeat_that_is_under_way() {
        THREADS "acquire says rank/0; a requests; renew takes 1s; pass 2s; at renew 1666666666ns; x shuts-down done
        at withdraw 2666666666ns ..."
    }

    /// The last tenth of the time is for callbacks.
    fn a_shutdown_without_answers_ends_in_time_and_tells_what_is_open() {
        THREADS "open:0 locks; open:1 locks; release is-down; x shuts-down fails Unsettled 2 9s; x told open:
        x told planned: down; called release open:0 10..30"
    }

    fn a_shutdown_ends_within_the_time_that_it_is_given() {
        THREADS "a locks; release is-down; x shuts-down-within 1s fails Unsettled 1 900ms"
    }

    fn a_shutdown_repeats_what_is_not_answered() {
        THREADS "a locks; release says down*3; x shuts-down done 75ms..150ms; called release 4"
    }

    fn a_shutdown_that_is_refused_does_not_try_again() {
        THREADS "a locks; release says denied; x shuts-down fails Unsettled 1 0s; x told planned: denied; called release 1"
    }

    /// The store refuses the withdrawal as well, as one that can't save does.
    fn a_newcomer_that_the_store_takes_no_writes_of_is_told_at_once_and_leaves_nothing_to_settle() {
        UNWATCHED "acquire says full; withdraw says full; a locks fails Unavailable 0s; x shuts-down done 0s"
    }

    fn a_grant_that_a_shutdown_finds_is_released() {
        THREADS "acquire says rank/0; a requests; withdraw says got/77; x shuts-down done
        asked acquire withdraw release/77"
    }

    fn a_release_of_a_found_grant_that_is_not_answered_is_repeated_as_a_release() {
        THREADS "acquire says rank/0; a requests; withdraw says got/77; release says down; x shuts-down done
        called withdraw 1; called release 2"
    }

    fn a_shutdown_waits_for_the_release_of_a_caller() {
        THREADS "a locks; release takes 1s; a unlocks; x shuts-down done 1s; called release 1; a done"
    }

    fn a_shutdown_tells_of_a_release_that_another_thread_could_not_end_in_time() {
        THREADS "a locks; release takes 2s; a unlocks; x shuts-down-within 1s fails Unsettled 1 900ms; a done"
    }

    /// No release waits for it.
    fn a_shutdown_waits_for_a_round_of_the_watchdog() {
        THREADS "a locks; renew takes 1s; pass 9698ms; x shuts-down done 1s; at release 9698ms"
    }

    /// The shutdown tells the server, and the guard does not.
    fn a_guard_that_is_given_up_during_a_shutdown_is_not_released_twice() {
        THREADS "a locks; release takes 1s; x shuts-down; a unlocks lost Shutdown 0s; x done; called release 1"
    }

    fn what_callers_had_left_behind_is_told_as_well() {
        THREADS "a locks; a is-cut; a drops; pass 3s; asked ...; a is-back; x shuts-down done; asked release; chores 0"
    }

    /// The threads that had something to tell have ended by then.
    fn a_release_that_a_caller_leaves_behind_during_a_shutdown_is_told_as_well() {
        THREADS "a locks; b locks; release takes 1s; b is-cut; b drops; x shuts-down; pass 500ms; called release a 1
        pass 500ms; b is-back; b done; x done 0s..1999ms; called release b 2..9"
    }
}

#[test]
fn a_shutdown_fails_waiters_reports_and_releases_holds_and_runs_callbacks() {
    let mut scene = Scene::of(&THREADS);
    let reports = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reports);
    scene.world.client.on_lost(move |lost| {
        assert_eq!(lost.cause, LostCause::Shutdown);
        counted.fetch_add(1, Ordering::SeqCst);
    });
    scene.play("a locks; acquire says rank/0; b requests; x shuts-down done 0s");
    assert_eq!(reports.load(Ordering::SeqCst), 1);
    assert!(scene.world.shared.timers.is_gone());
    scene.play(
        "a hears Shutdown; b waits fails Shutdown; called release 1; called withdraw 1; called acquire 2; held nobody
        waiting nobody; asked ...; a unlocks lost Shutdown; x shuts-down done; asked nothing (a second one does nothing)",
    );
}

/// The withdrawal of such a call is refused for the same reason. An attempt without an answer may have left something.
#[test]
fn a_call_that_was_refused_for_its_lock_leaves_nothing_to_settle() {
    for kind in ["InvalidName", "InvalidConfig", "Corrupt", "Mismatch"] {
        let then = format!("withdraw says {kind}; a tries fails {kind}; x shuts-down");
        play(&UNWATCHED, &format!("acquire says {kind}; {then} done 0s"));
        play(&UNWATCHED, &format!("acquire says down {kind}; {then} fails Unsettled 1 0s"));
    }
}

/// Other calls may be answered meanwhile: it does not wait for the sum.
#[test]
fn slow_releases_are_sent_side_by_side() {
    let locks: String = (0..12).map(|n| format!("h{n} locks;")).collect();
    play(&THREADS, &format!("{locks} release takes 1s*12; x shuts-down done 1s..7s; called release 12"));
}

#[test]
fn many_withdrawals_are_shared_by_the_threads() {
    let each = |does: fn(u64) -> String| (0..40).map(does).collect::<String>();
    let requests = each(|n| format!("acquire says rank/{n}; w{n}@many requests;"));
    let decided = each(|n| format!("; w{n} decided"));
    play(&THREADS, &format!("{requests} x shuts-down done; called withdraw 40 {decided}"));
}

/// In real time, since it is user code.
#[test]
fn a_callback_that_does_not_end_is_not_waited_for_beyond_the_limit() {
    let world = World::with(ms(40), crate::watchdog::THREADS.dog);
    let (release, wait) = mpsc::channel::<()>();
    let wait = parking_lot::Mutex::new(wait);
    world.client.on_lost(move |_| _ = wait.lock().recv());
    let _guard = world.lock("callback").lock().unwrap();
    world.client.shutdown().unwrap();
    assert_eq!(lines_of_this_thread("a loss callback is still running"), 1);
    drop(release);
    let world = World::new();
    let _guard = world.lock("no callback").lock().unwrap();
    world.client.shutdown().unwrap();
    assert_eq!(lines_of_this_thread("a loss callback is still running"), 1, "none runs");
}

#[test]
fn losses_that_were_reported_and_not_logged_are_logged_at_the_end() {
    let mut scene = Scene::of(&THREADS);
    scene.play("shutdown:unlogged:0 locks; shutdown:unlogged:1 locks");
    for n in 0..2 {
        let ledger = &scene.world.shared.ledger;
        let claim = scene.world.claim(&format!("shutdown:unlogged:{n}"));
        ledger.unlogged.keep(ledger.report_loss(&claim, LostCause::Taken).unwrap());
    }
    scene.play("x shuts-down done; shutdown:unlogged:0 is-lost; shutdown:unlogged:1 is-lost");
    let said = super::logger::lines_about("lock `shutdown:unlogged:");
    let said: Vec<_> = said.iter().filter(|(_, line)| line.contains("was lost by")).collect();
    assert!(said.len() == 2 && said[0].1.contains("unlogged:0"), "in order: {said:?}");
}

/// Whether the withdrawal, which is sent then, is answered before the shutdown has looked is left open.
#[test]
fn a_withdrawal_waits_for_an_ask_no_longer_than_the_shutdown_lasts() {
    let world = World::new();
    world.store.delay(Op::Acquire, 2 * OUTAGE);
    let (lock, client) = (world.lock("never"), world.client.clone());
    let waits = world.begin(move || lock.lock());
    let (ended, took) = world.run(move || client.shutdown());
    assert!(matches!(ended, Ok(()) | Err(Error::Unsettled { count: 1, .. })), "{ended:?}");
    assert_eq!(took, OUTAGE - S);
    assert_eq!(world.store.times(Op::Withdraw), [took]);
    assert!(matches!(world.finish(&waits).0, Err(Error::Shutdown { .. })));
}

#[test]
fn a_shutdown_waits_for_a_thread_that_has_panicked_and_says_so() {
    let world = World::with(OUTAGE, |_| panic!("planned"));
    world.lock("panics").lock().unwrap().unlock().unwrap();
    world.client.shutdown().unwrap();
    assert_eq!(lines_of_this_thread("the thread fairlock-dog had panicked"), 1);
}
