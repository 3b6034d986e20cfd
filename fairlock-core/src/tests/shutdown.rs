//! The end of a client: what it tells its callers, what it tells the server, and how long it takes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use super::logger::lines_of_this_thread;
use super::scene::*;
use super::store::Op;
use super::support::{OUTAGE, S, World, ms};
use crate::{Error, LostCause};

#[test]
fn a_withdrawal_goes_after_an_ask_that_is_under_way() {
    let s = threads().acquire().takes(S).acquire().says(DOWN).a().locks().x().shuts_down();
    s.a().fails(Shutdown).x().done().after(S).at(WITHDRAW, [S]);
}

/// See `Cleanup::has_to_wait`. The watchdog may withdraw the request as well as the shutdown.
#[test]
fn a_withdrawal_goes_after_a_heartbeat_that_is_under_way() {
    let s = threads().acquire().says(rank(0)).a().requests().renew().takes(S).pass(2 * S);
    s.at(RENEW, [ns(1_666_666_666)]).x().shuts_down().done().at_first(WITHDRAW, [ns(2_666_666_666)]);
}

/// A shutdown without answers ends in time and tells what is open. The last tenth of the time is for callbacks.
#[test]
fn a_shutdown_without_answers_tells_what_is_open() {
    let s = threads().by("open:0").locks().by("open:1").locks().release().is_down();
    s.x().shuts_down().fails(UnsettledOf(2)).after(9 * S).told("open:").told("planned: down");
    s.called(RELEASE.about("open:0"), 10..=30);
}

#[test]
fn a_shutdown_ends_within_the_time_that_it_is_given() {
    let s = threads().a().locks().release().is_down();
    s.x().shuts_down_within(S).fails(UnsettledOf(1)).after(ms(900));
}

#[test]
fn a_shutdown_repeats_what_is_not_answered() {
    let s = threads().a().locks().release().says(DOWN.times(3));
    s.x().shuts_down().done().after(ms(75)..=ms(150)).called(RELEASE, 4);
}

#[test]
fn a_shutdown_repeats_what_is_refused() {
    threads().a().locks().release().says(DENIED.times(3)).x().shuts_down().done().called(RELEASE, 4);
    let s = threads().a().locks().is_denied().x().shuts_down().fails(UnsettledOf(1)).after(9 * S);
    s.x().told("planned: denied").called(RELEASE, 10..=30);
}

/// A newcomer that the store takes no writes of is told at once and leaves nothing to settle. The store refuses the withdrawal as
/// well, as one that can't save does.
#[test]
fn a_newcomer_at_a_full_store_leaves_nothing_to_settle() {
    let s = unwatched().acquire().says(FULL).withdraw().says(FULL);
    s.a().locks().fails(Unavailable).after(ms(0)).x().shuts_down().done().after(ms(0));
}

#[test]
fn a_grant_that_a_shutdown_finds_is_released() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().says(got(77)).x().shuts_down().done();
    s.asked([ACQUIRE, WITHDRAW, RELEASE.of(77)]);
}

/// The answer comes when the shutdown has ended.
#[test]
fn a_grant_that_a_shutdown_finds_too_late_is_released() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().says(got(77)).withdraw().takes(2 * S);
    s.x().shuts_down_within(S).fails(UnsettledOf(1)).pass(2 * S).asked([ACQUIRE, WITHDRAW, RELEASE.of(77)]);
}

/// A release of a found grant that is not answered is repeated as a release.
#[test]
fn an_unanswered_release_of_a_found_grant_is_repeated() {
    let s = threads().acquire().says(rank(0)).a().requests().withdraw().says(got(77)).release().says(DOWN);
    s.x().shuts_down().done().called(WITHDRAW, 1).called(RELEASE, 2);
}

#[test]
fn a_shutdown_waits_for_the_release_of_a_caller() {
    let s = threads().a().locks().release().takes(S).a().unlocks().x().shuts_down().done().after(S);
    s.called(RELEASE, 1).a().done();
}

/// A shutdown tells of a release that another thread could not end in time.
#[test]
fn a_shutdown_tells_of_a_release_that_did_not_end_in_time() {
    let s = threads().a().locks().release().takes(2 * S).a().unlocks();
    s.x().shuts_down_within(S).fails(UnsettledOf(1)).after(ms(900)).a().done();
}

/// The thread of the first attempt is gone.
#[test]
fn a_shutdown_repeats_a_release_that_panics() {
    let s = threads().a().locks().release().panics(2).x().shuts_down().done();
    s.after(ms(0)..=ms(50)).called(RELEASE, 3);
}

/// The owner's next call has the release of the earlier hold in hand.
#[test]
fn a_shutdown_waits_for_a_release_by_the_owners_next_call() {
    let s = unwatched().a().locks().release().says(DOWN).a().drops().release().takes(S).a().locks();
    s.x().shuts_down().a().fails(Shutdown).x().done().after(S).called(RELEASE, 2);
}

/// No release waits for it.
#[test]
fn a_shutdown_waits_for_a_round_of_the_watchdog() {
    let s = threads().a().locks().renew().takes(S).pass(ms(9698)).x().shuts_down().done().after(S);
    s.at(RELEASE, [ms(9698)]);
}

/// A guard that is given up during a shutdown is not released twice. The shutdown tells the server, and the guard does not.
#[test]
fn a_guard_given_up_during_a_shutdown_is_released_once() {
    let s = threads().a().locks().release().takes(S).x().shuts_down();
    s.a().unlocks().lost(LostCause::Shutdown).after(ms(0)).x().done().called(RELEASE, 1);
}

#[test]
fn what_callers_had_left_behind_is_told_as_well() {
    let s = threads().a().locks().is_cut().drops().pass(3 * S).forget_asked().a().is_back();
    s.x().shuts_down().done().asked(RELEASE).backlog(0);
}

/// A release that a caller leaves behind during a shutdown is told as well. The threads that had something to tell have ended by
/// then.
#[test]
fn a_release_left_behind_during_a_shutdown_is_told() {
    let s = threads().a().locks().b().locks().release().takes(S).b().is_cut().drops().x().shuts_down();
    s.pass(ms(500)).called(RELEASE.about(A), 1).pass(ms(500)).b().is_back().done();
    s.x().done().after(ms(0)..=ms(1999)).called(RELEASE.about(B), 2..=9);
}

/// A shutdown fails waiters reports and releases holds and runs callbacks, which have a tenth of its time in real time.
#[test]
fn a_shutdown_fails_waiters_and_releases_holds() {
    let s = Scene::of(World::with(1000 * S, crate::watchdog::THREADS.dog));
    let reports = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reports);
    s.client.on_lost(move |lost| {
        assert_eq!(lost.cause, LostCause::Shutdown);
        counted.fetch_add(1, Ordering::SeqCst);
    });
    s.a().locks().acquire().says(rank(0)).b().requests().x().shuts_down().done().after(ms(0));
    assert_eq!(reports.load(Ordering::SeqCst), 1);
    assert!(s.shared.timers.is_gone());
    s.a().hears(LostCause::Shutdown).b().waits().fails(Shutdown).called(RELEASE, 1).called(WITHDRAW, 1);
    s.called(ACQUIRE, 2).held(&[]).waiting(&[]).forget_asked().a().unlocks().lost(LostCause::Shutdown);
    s.x().shuts_down().done().asked_nothing(); // a second one does nothing
}

/// A call that was refused for its lock leaves nothing to settle. The withdrawal of such a call is refused for the same reason.
/// An attempt without an answer may have left something.
#[test]
fn a_call_refused_for_its_lock_leaves_nothing_to_settle() {
    for (says, kind) in [
        (BackendErrorKind::InvalidName, InvalidName),
        (BackendErrorKind::InvalidConfig, InvalidConfig),
        (BackendErrorKind::Corrupt, Corrupt),
        (BackendErrorKind::Mismatch, Mismatch),
        (BackendErrorKind::Unsupported, Unsupported),
    ] {
        let s = unwatched().acquire().says(error(says)).withdraw().says(error(says)).a().tries().fails(kind);
        s.x().shuts_down().done().after(ms(0));
        let s = unwatched().acquire().says([DOWN, error(says)]).withdraw().says(error(says));
        s.a().tries().fails(kind).x().shuts_down().done().called(WITHDRAW, 2);
    }
}

/// Other calls may be answered meanwhile: it does not wait for the sum.
#[test]
fn slow_releases_are_sent_side_by_side() {
    let s = threads();
    (0..12).for_each(|n| _ = s.by(&format!("holder {n}")).locks());
    s.release().takes_each(S, 12).x().shuts_down().done().after(S..=7 * S).called(RELEASE, 12);
}

#[test]
fn many_withdrawals_are_shared_by_the_threads() {
    let s = threads();
    let waiter = |n: u64| s.by(&format!("waiter {n}"));
    (0..40).for_each(|n| _ = s.acquire().says(rank(n)).by(&format!("waiter {n}")).on("many").requests());
    s.x().shuts_down().done().called(WITHDRAW, 40);
    (0..40).for_each(|n| _ = waiter(n).decided());
}

/// A callback that does not end is not waited for beyond the limit. In real time, since it is user code.
#[test]
fn a_callback_is_not_waited_for_beyond_the_limit() {
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

/// Losses that were reported and not logged are logged at the end.
#[test]
fn losses_that_were_not_logged_are_logged_at_the_end() {
    let s = threads();
    let names = ["shutdown:unlogged:0", "shutdown:unlogged:1"];
    names.iter().for_each(|name| _ = s.by(name).locks());
    for name in names {
        let ledger = &s.shared.ledger;
        ledger.unlogged.keep(ledger.report_loss(&s.claim(name), LostCause::Taken).unwrap());
    }
    s.x().shuts_down().done();
    names.iter().for_each(|name| _ = s.by(name).is_lost());
    let said = super::logger::lines_about("lock `shutdown:unlogged:");
    let said: Vec<_> = said.iter().filter(|(_, line)| line.contains("was lost by")).collect();
    assert!(said.len() == 2 && said[0].1.contains("unlogged:0"), "in order: {said:?}");
}

/// A withdrawal waits for an ask no longer than the shutdown lasts. Whether the withdrawal, which is sent then, is answered
/// before the shutdown has looked is left open.
#[test]
fn a_withdrawal_waits_for_an_ask_until_the_shutdown_ends() {
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
