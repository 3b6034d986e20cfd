//! What callers left to be told to the server: repeated, passed on and given up.

use log::Level;

use super::logger::lines_about;
use super::scene::{Scene, THREADS, UNWATCHED, play, scenes};
use super::store::Op;
use super::support::World;

scenes! {
    fn a_grant_that_a_withdrawal_finds_is_released_by_its_token() {
        THREADS "acquire says rank/0; a requests; withdraw says got/77; a drops; asked acquire withdraw release/77
        chores 0"
    }

    fn a_withdrawal_that_panics_is_repeated() {
        THREADS "acquire says rank/0; a requests; withdraw panics 2; a drops; pass 500ms; called withdraw 3; chores 0"
    }

    /// The watchdog has tried it twice and pauses, when the next call takes it over and is delayed.
    fn a_withdrawal_that_failed_for_a_caller_is_repeated_by_the_watchdog() {
        THREADS "acquire says rank/0; a requests; withdraw says down*2; a drops; called withdraw 2; pass 10ms
        withdraw takes 1s; withdraw says down; a tries; pass 500ms; called withdraw 3; a fails Unavailable; pass 2s
        asked acquire withdraw*3 withdraw!dog; chores 0"
    }

    fn a_release_goes_alone_between_the_withdrawals_around_it() {
        THREADS "acquire says rank/0 rank/1 rank/2; a requests; b@a requests; c@a requests; d locks
        withdraw takes 1s; a drops (this one is under way); release says down; b drops; d drops; c drops; asked ...
        pass 1s; asked withdraw release withdraw"
    }

    /// Another server keeps the lock whose release fails.
    fn a_grant_that_a_withdrawal_finds_is_released_at_once_while_others_pause() {
        THREADS "acquire says rank/0; a requests; b locks; b is-cut; b drops; pass 1001ms; withdraw says got/77
        asked ...; a drops; asked withdraw release"
    }

    /// A message about a grant that a withdrawal has found is no stray grant.
    fn a_grant_that_a_withdrawal_has_found_is_known_when_its_message_comes() {
        THREADS "acquire says rank/0; a requests; withdraw says got/77; a drops; a is-pushed 77; called release 1
        stats ignored 0"
    }

    /// A wake-up of a plain lock is for any waiter, and this one may have used it up.
    fn a_waiter_that_leaves_a_plain_lock_has_another_one_look() {
        THREADS "acquire says busy*3; a is plain; a requests; b@a is plain; b requests; a drops
        asked acquire acquire withdraw acquire"
    }

    fn a_waiter_that_leaves_a_fair_lock_wakes_no_other() {
        THREADS "acquire says rank/0 rank/1; a requests; b@a requests; a drops; asked acquire acquire withdraw"
    }

    fn a_release_of_a_plain_lock_in_the_background_wakes_no_other_waiter() {
        THREADS "a is plain; a locks; acquire says busy; b@a is plain; b requests; release says down; a drops
        asked acquire acquire release release"
    }

    /// Another server keeps the lock whose release fails: that one pauses.
    fn a_first_attempt_that_is_answered_does_not_end_the_pause_of_those_that_failed() {
        THREADS "acquire says rank/0; a requests; b locks; b is-cut; b drops; called release b 2..9; pass 1001ms
        called release b 4..9; asked ...; a drops; called withdraw a 1; called release b 0"
    }

    /// The caller's attempt, the watchdog's, and its repeat, which is the first and at once again.
    fn repeats_that_are_answered_end_the_pause_for_all_that_fail_later() {
        THREADS "acquire says rank/0 rank/1; a requests; b@a requests; c locks; a is-cut; a drops; b drops; pass 2s
        a is-back; pass 1s; chores 0; asked ...; release says down*2; c drops; asked release*3"
    }
}

#[test]
fn a_withdrawal_is_repeated_until_lease_and_place_are_over_at_the_server() {
    play(
        &THREADS,
        "acquire says rank/0; chores:repeated requests; withdraw is-down; chores:repeated drops; pass 34s
        called withdraw 40..140; at withdraw 0s 0s ... (the first repeat is at once); chores 1; pass 2s; chores 0
        asked ...; pass 60s; called withdraw 0",
    );
    let said = lines_about("for lock `chores:repeated`");
    let text = "fairlock::release: 1 releases or withdrawals given up; the first is Withdraw for lock `chores:repeated`";
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0 == Level::Debug && said[0].1.starts_with(text), "the outage has its lines: {said:?}");
}

#[test]
fn a_withdrawal_that_is_refused_is_given_up_with_a_warning() {
    play(
        &THREADS,
        "acquire says rank/0; chores:refused requests; withdraw says denied; chores:refused drops; pass 60s
        called withdraw 1; waiting nobody; chores 0",
    );
    let said = lines_about("given up; the first is Withdraw for lock `chores:refused`: planned: denied");
    assert!(matches!(&said[..], [(Level::Warn, _)]), "{said:?}");
}

/// The caller has heard of it, and nothing is left at the server.
#[test]
fn a_withdrawal_that_is_refused_as_its_request_was_is_not_worth_a_line() {
    play(
        &THREADS,
        "acquire says Mismatch; withdraw says Mismatch; chores:mismatch locks fails Mismatch; called withdraw 1",
    );
    assert!(lines_about("given up; the first is Withdraw for lock `chores:mismatch`").is_empty());
}

/// The first withdrawal is under way when the others come.
#[test]
fn chores_that_are_given_up_together_are_one_line() {
    play(
        &THREADS,
        "acquire says rank/0 rank/1 rank/2; chores:together requests; b@chores:together requests
        c@chores:together requests; withdraw takes 1s; chores:together drops; withdraw says left denied*2; b drops
        c drops; pass 2s",
    );
    let said = lines_about("for lock `chores:together`: planned");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].1.contains(": 2 releases or withdrawals given up"), "{said:?}");
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

/// The server answers again, but they are in a pause after those that failed.
#[test]
fn a_client_that_is_dropped_tries_what_has_failed_once_more() {
    let mut scene = Scene::of(&THREADS);
    scene.play(
        "acquire says rank/0; withdraw is-down; release is-down; a requests; a drops; b locks; b drops; pass 20s
        chores 2; withdraw is-up; release is-up; asked ...",
    );
    let (store, ..) = scene.without_handles();
    assert_eq!([Op::Release, Op::Withdraw].map(|op| store.times(op).len()), [1, 1]);
}

/// The server does not answer, so that the client still knows of its other hold.
#[test]
fn a_client_that_is_gone_with_leaked_holds_says_so() {
    let mut scene = Scene::of(&UNWATCHED);
    scene.play("chores:leaked locks; chores:leaked leaks; b locks; release is-down");
    scene.without_handles();
    let said = lines_about("holds lock `chores:leaked`");
    let text = "its 1 leaked holds are not renewed any more";
    assert!(said.len() == 1 && said[0].1.contains(text), "{said:?}");
    play(&UNWATCHED, "chores:given-back locks; chores:given-back unlocks done");
    assert!(lines_about("holds lock `chores:given-back`").is_empty());
}
