//! What callers left to be told to the server: repeated, passed on and given up.

use log::Level;

use super::logger::lines_about;
use super::store::{LEASE, Op, busy, denied, down, queued, was_granted};
use super::support::{PLACE, S, World, ms};
use crate::backend::{BackendError, BackendErrorKind, Withdrawn};

#[test]
fn a_withdrawal_is_repeated_until_lease_and_place_are_over_at_the_server() {
    let world = World::new();
    let request = world.in_line("chores:repeated");
    world.store.take_down(Op::Withdraw);
    drop(request);
    world.clock.advance(LEASE + PLACE - S);
    let tries = world.store.times(Op::Withdraw);
    assert!((40..140).contains(&tries.len()), "{}", tries.len());
    assert_eq!(tries[..2], [ms(0), ms(0)], "the first repeat is at once");
    assert_eq!(world.shared.chores.len(), 1);
    world.clock.advance(2 * S);
    assert_eq!(world.shared.chores.len(), 0);
    let tries = world.store.times(Op::Withdraw).len();
    world.clock.advance(60 * S);
    assert_eq!(world.store.times(Op::Withdraw).len(), tries);
    let said = lines_about("for lock `chores:repeated`");
    let text = "fairlock::release: 1 releases or withdrawals given up; the first is Withdraw for lock `chores:repeated`";
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == Level::Debug && said[0].1.starts_with(text), "the outage has its lines: {said:?}");
}

#[test]
fn a_withdrawal_that_is_refused_is_given_up_with_a_warning() {
    let world = World::new();
    let request = world.in_line("chores:refused");
    world.store.plan().withdraw.push_back(denied());
    drop(request);
    world.clock.advance(60 * S);
    assert_eq!(world.store.times(Op::Withdraw).len(), 1);
    let said = lines_about("given up; the first is Withdraw for lock `chores:refused`: planned: denied");
    assert!(matches!(&said[..], [(Level::Warn, _)]), "{said:?}");
    assert!(world.client.waiting().is_empty() && world.shared.chores.len() == 0);
}

/// The caller has heard of it, and nothing is left at the server.
#[test]
fn a_withdrawal_that_is_refused_as_its_request_was_is_not_worth_a_line() {
    let world = World::new();
    let mismatch = || BackendError::new(BackendErrorKind::Mismatch, "planned: another kind");
    world.store.plan().acquire.push_back(Err(mismatch()));
    world.store.plan().withdraw.push_back(Err(mismatch()));
    assert!(world.lock("chores:mismatch").lock().is_err());
    world.settle();
    assert_eq!(world.store.times(Op::Withdraw).len(), 1);
    assert!(lines_about("given up; the first is Withdraw for lock `chores:mismatch`").is_empty());
}

#[test]
fn chores_that_are_given_up_together_are_one_line() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(1), queued(2)]);
    let lock = |_| world.lock("chores:together").request().unwrap();
    let [first, second, third] = [0, 1, 2].map(lock);
    world.store.delay(Op::Withdraw, S);
    drop(first);
    world.settle(); // the first withdrawal is under way
    world.store.plan().withdraw.extend([Ok(Withdrawn::Left), denied(), denied()]);
    drop((second, third));
    world.clock.advance(2 * S);
    let said = lines_about("for lock `chores:together`: planned");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].1.contains(": 2 releases or withdrawals given up"), "{said:?}");
}

#[test]
fn a_grant_that_a_withdrawal_finds_is_released_by_its_token() {
    let world = World::new();
    let request = world.in_line("found");
    world.store.plan().withdraw.push_back(was_granted(77));
    drop(request);
    world.settle();
    let asked = world.store.asked();
    let last = asked.last().unwrap();
    assert_eq!((asked.len(), last.op, last.number), (3, Op::Release, 77));
    assert_eq!(world.shared.chores.len(), 0);
}

#[test]
fn a_release_goes_alone_between_the_withdrawals_around_it() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(1), queued(2)]);
    let [first, second, third] = [(); 3].map(|()| world.lock("withdrawn").request().unwrap());
    let guard = world.lock("released").lock().unwrap();
    world.store.delay(Op::Withdraw, S);
    drop(first);
    world.settle(); // the first withdrawal is under way
    world.store.plan().release.push_back(down());
    drop(second);
    drop(guard);
    drop(third);
    world.store.asked();
    world.clock.advance(S);
    assert_eq!(world.store.ops(), [Op::Withdraw, Op::Release, Op::Withdraw]);
}

/// Another server keeps the lock whose release fails.
#[test]
fn a_grant_that_a_withdrawal_finds_is_released_at_once_while_others_pause() {
    let world = World::new();
    let request = world.in_line("found");
    let guard = world.lock("fails").lock().unwrap();
    world.store.cut("fails");
    drop(guard);
    world.clock.advance(S + ms(1));
    world.store.plan().withdraw.push_back(was_granted(77));
    world.store.asked();
    drop(request);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Withdraw, Op::Release]);
}

/// A message about a grant that a withdrawal has found is no stray grant.
#[test]
fn a_grant_that_a_withdrawal_has_found_is_known_when_its_message_comes() {
    let world = World::new();
    let request = world.in_line("known");
    let claim = world.claim("known");
    world.store.plan().withdraw.push_back(was_granted(77));
    drop(request);
    world.settle();
    world.push(&claim, 77);
    world.settle();
    assert_eq!((world.store.times(Op::Release).len(), world.client.stats().wake_ups_ignored), (1, 0));
}

/// A wake-up of a plain lock is for any waiter, and this one may have used it up.
#[test]
fn a_waiter_that_leaves_a_plain_lock_has_another_one_look() {
    let world = World::new();
    world.store.plan().acquire.extend([busy(), busy(), busy()]);
    let [first, _second] = [(); 2].map(|()| world.plain("passes on").request().unwrap());
    drop(first);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire, Op::Withdraw, Op::Acquire]);
}

#[test]
fn a_waiter_that_leaves_a_fair_lock_wakes_no_other() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(1)]);
    let [first, _second] = [(); 2].map(|()| world.lock("in order").request().unwrap());
    drop(first);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire, Op::Withdraw]);
}

#[test]
fn a_release_of_a_plain_lock_in_the_background_wakes_no_other_waiter() {
    let world = World::new();
    let guard = world.plain("released").lock().unwrap();
    world.store.plan().acquire.push_back(busy());
    let _waits = world.plain("released").request().unwrap();
    world.store.plan().release.push_back(down());
    drop(guard);
    world.settle();
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Acquire, Op::Release, Op::Release]);
}

/// Another server keeps the locks whose releases fail.
#[test]
fn a_first_attempt_that_is_answered_does_not_end_the_pause_of_those_that_failed() {
    let world = World::new();
    let request = world.in_line("answers");
    let guard = world.lock("fails").lock().unwrap();
    world.store.cut("fails");
    drop(guard);
    world.clock.advance(S + ms(1));
    let tries = world.store.calls_about("fails", Op::Release);
    assert!(tries >= 4, "{tries}");
    drop(request);
    world.settle();
    assert_eq!(world.store.calls_about("answers", Op::Withdraw), 1);
    assert_eq!(world.store.calls_about("fails", Op::Release), tries, "it pauses");
}

#[test]
fn repeats_that_are_answered_end_the_pause_for_all_that_fail_later() {
    let world = World::new();
    world.store.plan().acquire.extend([queued(0), queued(1)]);
    let requests = [(); 2].map(|()| world.lock("recovers").request().unwrap());
    let guard = world.lock("later").lock().unwrap();
    world.store.cut("recovers");
    drop(requests);
    world.clock.advance(2 * S);
    world.store.restore("recovers");
    world.clock.advance(S);
    assert_eq!(world.shared.chores.len(), 0);
    world.store.asked();
    world.store.plan().release.extend([down(), down()]);
    drop(guard);
    world.settle();
    // The caller's attempt, the watchdog's, and its repeat.
    assert_eq!(world.store.ops(), [Op::Release; 3], "the first repeat is at once again");
}

/// The last handle goes, so there is no other attempt.
#[test]
fn a_request_that_is_the_last_handle_is_withdrawn() {
    let world = World::without_watchdog();
    let request = world.in_line("last");
    let (store, ..) = world.without_handles();
    assert_eq!(store.ops(), [Op::Acquire]);
    drop(request);
    assert_eq!(store.ops(), [Op::Withdraw]);
}

#[test]
fn a_client_that_is_gone_with_leaked_holds_says_so() {
    let world = World::without_watchdog();
    world.lock("chores:leaked").lock().unwrap().leak();
    let (kept, text) = (world.lock("chores:kept").lock().unwrap(), "leaked holds are not renewed any more");
    world.store.take_down(Op::Release); // so that the client still knows of the other hold
    drop((world, kept));
    let said = lines_about("holds lock `chores:leaked`");
    assert!(said.len() == 1 && said[0].1.contains(&format!("its 1 {text}")), "{said:?}");
    let world = World::without_watchdog();
    world.lock("chores:given back").lock().unwrap().unlock().unwrap();
    drop(world);
    assert!(lines_about("holds lock `chores:given back`").is_empty());
}
