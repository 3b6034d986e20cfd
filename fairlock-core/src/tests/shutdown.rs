//! The end of a client: what it tells its callers, what it tells the server, and how long it takes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::logger::lines_of_this_thread;
use super::store::{Op, denied, down, queued, was_granted};
use super::support::{OUTAGE, S, World, ms};
use crate::backend::{BackendError, BackendErrorKind};
use crate::{Error, LostCause, OwnedGuard};

/// How long an end takes at which the server could be told of everything.
fn end_in_order(world: &World) -> Duration {
    let (ended, took) = world.finish(&world.ends());
    ended.unwrap();
    took
}

/// Its holds, on their own locks.
fn holds<const N: usize>(world: &World, name: &str) -> [OwnedGuard; N] {
    std::array::from_fn(|n| world.lock(&format!("{name}:{n}")).lock().unwrap())
}

#[test]
fn a_shutdown_fails_waiters_reports_and_releases_holds_and_runs_callbacks() {
    let world = World::new();
    let reports = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reports);
    world.client.on_lost(move |lost| {
        assert_eq!(lost.cause, LostCause::Shutdown);
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let [guard] = holds(&world, "held");
    let request = world.in_line("waits");
    let took = end_in_order(&world);
    assert_eq!((took, reports.load(Ordering::SeqCst)), (ms(0), 1));
    assert_eq!(guard.lost().try_recv().unwrap().cause, LostCause::Shutdown);
    assert!(matches!(request.wait(), Err(Error::Shutdown { .. })));
    let ops = world.store.ops();
    assert_eq!(ops.len(), 4, "{ops:?}");
    assert!(ops.contains(&Op::Release) && ops.contains(&Op::Withdraw), "{ops:?}");
    assert!(world.client.held().is_empty() && world.client.waiting().is_empty());
    assert!(world.shared.timers.is_gone());
    assert!(matches!(guard.unlock(), Err(Error::Lost(_))));
    world.client.shutdown().unwrap();
    assert!(world.store.ops().is_empty(), "a second one does nothing");
}

#[test]
fn a_withdrawal_goes_after_an_ask_that_is_under_way() {
    let world = World::new();
    world.store.delay(Op::Acquire, S);
    world.store.plan().acquire.push_back(down());
    let waits = world.locks("asks");
    let ends = world.ends();
    assert!(matches!(world.finish(&waits).0, Err(Error::Shutdown { .. })));
    let (ended, took) = world.finish(&ends);
    ended.unwrap();
    assert_eq!((took, world.store.times(Op::Withdraw)), (S, vec![S]));
}

/// The last tenth of the time is for callbacks.
#[test]
fn a_shutdown_without_answers_ends_in_time_and_tells_what_is_open() {
    let world = World::new();
    let _guards: [_; 2] = holds(&world, "open");
    world.store.take_down(Op::Release);
    let (ended, took) = world.finish(&world.ends());
    let Err(Error::Unsettled { count, lock, source }) = ended else { panic!("{ended:?}") };
    assert_eq!((count, took), (2, OUTAGE - S));
    assert!(lock.as_str().starts_with("open:"), "{lock}");
    assert_eq!(source.message(), "planned: down");
    let tries = world.store.calls_about("open:0", Op::Release);
    assert!((10..30).contains(&tries), "{tries}");
}

#[test]
fn a_shutdown_ends_within_the_time_that_it_is_given() {
    let world = World::new();
    let _guards: [_; 1] = holds(&world, "short");
    world.store.take_down(Op::Release);
    let (ended, took) = world.finish(&world.ends_within(S));
    assert!(matches!(ended, Err(Error::Unsettled { count: 1, .. })), "{ended:?}");
    assert_eq!(took, S - S / 10);
}

#[test]
fn a_shutdown_repeats_what_is_not_answered() {
    let world = World::new();
    let [_guard] = holds(&world, "repeated");
    world.store.plan().release.extend([down(), down(), down()]);
    let took = end_in_order(&world);
    assert!(took >= ms(75) && took <= ms(150), "{took:?}");
    assert_eq!(world.store.times(Op::Release).len(), 4);
}

#[test]
fn a_shutdown_that_is_refused_does_not_try_again() {
    let world = World::new();
    let [_guard] = holds(&world, "refused");
    world.store.plan().release.push_back(denied());
    let (ended, took) = world.finish(&world.ends());
    let Err(Error::Unsettled { count: 1, source, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!((took, source.message()), (ms(0), "planned: denied"));
    assert_eq!(world.store.times(Op::Release).len(), 1);
}

/// The withdrawal of such a call is refused for the same reason.
#[test]
fn a_call_that_was_refused_for_its_lock_leaves_nothing_to_settle() {
    use BackendErrorKind::{Corrupt, InvalidConfig, InvalidName, Mismatch};
    for kind in [InvalidName, InvalidConfig, Corrupt, Mismatch] {
        for first in [None, Some(down())] {
            let (world, refused) = (World::without_watchdog(), BackendError::new(kind, "planned: refused"));
            let was_unanswered = first.is_some();
            world.store.plan().acquire.extend(first.into_iter().chain([Err(refused.clone())]));
            world.store.plan().withdraw.push_back(Err(refused));
            let lock = world.lock("refused");
            let (tried, _) = world.run(move || lock.try_lock());
            assert!(tried.is_err_and(|error| !matches!(error, Error::Unavailable { .. })));
            let (ended, took) = world.finish(&world.ends());
            // An attempt without an answer may have left something.
            assert_eq!(ended.is_err(), was_unanswered, "{kind:?}");
            assert_eq!(took, ms(0));
        }
    }
}

/// The store refuses the withdrawal as well, as one that can't save does.
#[test]
fn a_newcomer_that_the_store_takes_no_writes_of_is_told_at_once_and_leaves_nothing_to_settle() {
    let refused = || BackendError::new(BackendErrorKind::Refused, "planned: full");
    let world = World::without_watchdog();
    world.store.plan().acquire.push_back(Err(refused()));
    world.store.plan().withdraw.push_back(Err(refused()));
    let (locked, took) = world.finish(&world.locks("full"));
    assert!(locked.is_err_and(|error| error.is_transient()) && took == ms(0), "{took:?}");
    let took = end_in_order(&world);
    assert_eq!(took, ms(0));
}

/// Other calls may be answered meanwhile: it does not wait for the sum.
#[test]
fn slow_releases_are_sent_side_by_side() {
    const HOLDS: usize = 12;
    let world = World::new();
    let _guards: [_; HOLDS] = holds(&world, "slow");
    (0..HOLDS).for_each(|_| world.store.delay(Op::Release, S));
    let took = end_in_order(&world);
    assert!(took < 8 * S, "{took:?}");
    assert_eq!(world.store.times(Op::Release).len(), HOLDS);
}

#[test]
fn many_withdrawals_are_shared_by_the_threads() {
    const WAITERS: u64 = 40;
    let world = World::new();
    world.store.plan().acquire.extend((0..WAITERS).map(queued));
    let requests: Vec<_> = (0..WAITERS).map(|_| world.lock("many").request().unwrap()).collect();
    end_in_order(&world);
    assert_eq!(world.store.times(Op::Withdraw).len(), requests.len());
    assert_eq!(
        requests.iter().filter(|request| request.decided().try_recv().is_ok()).count(),
        requests.len()
    );
}

#[test]
fn a_grant_that_a_shutdown_finds_is_released() {
    let world = World::new();
    let _request = world.in_line("found");
    world.store.plan().withdraw.push_back(was_granted(77));
    end_in_order(&world);
    let asked = world.store.asked();
    assert!(asked.iter().any(|asked| asked.op == Op::Release && asked.number == 77), "{asked:?}");
}

#[test]
fn a_release_of_a_found_grant_that_is_not_answered_is_repeated_as_a_release() {
    let world = World::new();
    let _request = world.in_line("found");
    world.store.plan().withdraw.push_back(was_granted(77));
    world.store.plan().release.push_back(down());
    end_in_order(&world);
    assert_eq!((world.store.times(Op::Withdraw).len(), world.store.times(Op::Release).len()), (1, 2));
}

#[test]
fn a_shutdown_waits_for_the_release_of_a_caller() {
    let world = World::new();
    let [guard] = holds(&world, "caller");
    world.store.delay(Op::Release, S);
    let unlocks = world.begin(move || guard.unlock());
    let took = end_in_order(&world);
    assert_eq!((took, world.store.times(Op::Release).len()), (S, 1));
    world.finish(&unlocks).0.unwrap();
}

#[test]
fn a_shutdown_tells_of_a_release_that_another_thread_could_not_end_in_time() {
    let world = World::new();
    let [guard] = holds(&world, "in hand");
    world.store.delay(Op::Release, 2 * S);
    let unlocks = world.begin(move || guard.unlock());
    let (ended, took) = world.finish(&world.ends_within(S));
    assert!(matches!(ended, Err(Error::Unsettled { count: 1, .. })), "{ended:?}");
    assert_eq!(took, S - S / 10);
    world.finish(&unlocks).0.unwrap();
}

#[test]
fn a_shutdown_waits_for_a_round_of_the_watchdog() {
    let world = World::new();
    let [_guard] = holds(&world, "round");
    let due = world.claim("round:0").due_at().unwrap() - world.start;
    world.store.delay(Op::Renew, S);
    world.clock.advance(due);
    let took = end_in_order(&world);
    assert_eq!((took, world.store.times(Op::Release)), (S, vec![due]), "no release waits for it");
}

/// The shutdown tells the server, and the guard does not.
#[test]
fn a_guard_that_is_given_up_during_a_shutdown_is_not_released_twice() {
    let world = World::new();
    let [guard] = holds(&world, "twice");
    world.store.delay(Op::Release, S);
    let ends = world.ends();
    let (unlocked, took) = world.run(move || guard.unlock());
    assert!(matches!(unlocked, Err(Error::Lost(lost)) if lost.cause == LostCause::Shutdown));
    assert_eq!(took, ms(0));
    world.finish(&ends).0.unwrap();
    assert_eq!(world.store.times(Op::Release).len(), 1);
}

#[test]
fn what_callers_had_left_behind_is_told_as_well() {
    let world = World::new();
    let [guard] = holds(&world, "behind");
    world.store.cut("behind:0");
    drop(guard);
    world.clock.advance(3 * S);
    let tries = world.store.times(Op::Release).len();
    world.store.restore("behind:0");
    end_in_order(&world);
    assert_eq!(world.store.times(Op::Release).len(), tries + 1);
    assert_eq!(world.shared.chores.len(), 0);
}

/// In real time, since it is user code.
#[test]
fn a_callback_that_does_not_end_is_not_waited_for_beyond_the_limit() {
    let world = World::with(ms(40), crate::watchdog::THREADS.dog);
    let (release, wait) = mpsc::channel::<()>();
    let wait = parking_lot::Mutex::new(wait);
    world.client.on_lost(move |_| _ = wait.lock().recv());
    let [_guard] = holds(&world, "callback");
    world.client.shutdown().unwrap();
    assert_eq!(lines_of_this_thread("a loss callback is still running"), 1);
    drop(release);
    let world = World::new();
    let [_guard] = holds(&world, "no callback");
    world.client.shutdown().unwrap();
    assert_eq!(lines_of_this_thread("a loss callback is still running"), 1, "none runs");
}

#[test]
fn losses_that_were_reported_and_not_logged_are_logged_at_the_end() {
    let world = World::new();
    let guards: [_; 2] = holds(&world, "shutdown:unlogged");
    for guard in &guards {
        let claim = world.claim(guard.name());
        let lost = world.shared.ledger.report_loss(&claim, LostCause::Taken).unwrap();
        world.shared.ledger.unlogged.keep(lost);
    }
    end_in_order(&world);
    let said = super::logger::lines_about("lock `shutdown:unlogged:");
    let said: Vec<_> = said.iter().filter(|(_, line)| line.contains("was lost by")).collect();
    assert!(said.len() == 2 && said[0].1.contains("unlogged:0"), "in order: {said:?}");
    assert!(guards.iter().all(|guard| guard.is_lost()));
}

/// The threads that had something to tell have ended by then.
#[test]
fn a_release_that_a_caller_leaves_behind_during_a_shutdown_is_told_as_well() {
    let world = World::new();
    let [_kept, dropped] = holds(&world, "during");
    world.store.delay(Op::Release, S);
    world.store.cut("during:1");
    let drops = world.begin(move || drop(dropped));
    let ends = world.ends();
    world.clock.advance(S / 2);
    assert_eq!(world.store.calls_about("during:0", Op::Release), 1);
    world.clock.advance(S / 2);
    world.store.restore("during:1");
    world.finish(&drops);
    let (ended, took) = world.finish(&ends);
    ended.unwrap();
    assert!(took < 2 * S, "{took:?}");
    assert!(world.store.calls_about("during:1", Op::Release) >= 2);
}

/// Whether the withdrawal, which is sent then, is answered before the shutdown has looked is left open.
#[test]
fn a_withdrawal_waits_for_an_ask_no_longer_than_the_shutdown_lasts() {
    let world = World::new();
    world.store.delay(Op::Acquire, 2 * OUTAGE);
    let waits = world.locks("never");
    let (ended, took) = world.finish(&world.ends());
    assert!(matches!(ended, Ok(()) | Err(Error::Unsettled { count: 1, .. })), "{ended:?}");
    assert_eq!((took, world.store.times(Op::Withdraw)), (OUTAGE - S, vec![OUTAGE - S]));
    assert!(matches!(world.finish(&waits).0, Err(Error::Shutdown { .. })));
}

#[test]
fn a_shutdown_waits_for_a_thread_that_has_panicked_and_says_so() {
    let world = World::with(OUTAGE, |_| panic!("planned"));
    world.lock("panics").lock().unwrap().unlock().unwrap();
    world.client.shutdown().unwrap();
    assert_eq!(lines_of_this_thread("the thread fairlock-dog had panicked"), 1);
}
