//! How a lock is kept taken while the server does not answer, refuses, or says that the hold was over; and what never follows.

use super::scene::{Scene, THREADS, scenes};

scenes! {
    /// No renewal, and no release at the end.
    fn a_lock_is_kept_by_one_call_for_what_is_left_and_nothing_follows() {
        THREADS "a locks; pass 4s; a keeps 600s done 0s; asked acquire keep/596000; held nobody; pass 60s
        x shuts-down done; asked nothing; stats holds 1; stats longest-hold 4; stats lost 0"
    }

    fn a_time_that_is_over_is_an_unlock() {
        THREADS "a locks; pass 4s; a keeps 4s done; asked acquire release"
    }

    /// The longest time is a century.
    fn neither_a_fixed_lease_nor_a_longest_hold_bounds_the_time() {
        THREADS "a is fixed 30s; a locks; a keeps 600s done; asked acquire keep/600000"
        THREADS "a is capped 30s; a locks; a keeps 600s done; asked acquire keep/600000"
        THREADS "a locks; a keeps ever done; asked acquire keep/3153600000000"
    }

    fn only_the_last_guard_of_an_owner_can_keep_it() {
        THREADS "a locks; a' locks; a' keeps 600s fails Misuse; a' told more than once; a holds 1; a is-held
        a keeps 600s done; asked acquire count count keep"
    }

    fn a_hold_that_was_taken_is_lost() {
        THREADS "a locks; keep says not-held; a keeps 600s lost Taken; stats lost 1"
        THREADS "a locks; keep says down not-held; a keeps 600s lost Taken; stats lost 1"
    }

    fn a_hold_that_is_lost_is_not_kept() {
        THREADS "a is fixed 1s; a locks; pass 2s; a keeps 600s lost LeaseOver; called keep 0"
    }

    /// It was kept, and its time went by before an answer came. The server may not have been told at first.
    fn a_repeat_that_finds_nothing_after_the_end_has_kept_it() {
        THREADS "a locks; keep says down*2 not-held; keep takes 1s; a keeps 1s done
        asked acquire keep/1000 keep/1 keep/1; stats lost 0"
    }

    /// Its owner asks anew.
    fn without_an_answer_the_hold_is_not_released_and_the_error_says_what_may_be() {
        THREADS "a locks; keep is-down; a keeps 600s fails Unavailable 9s..9999ms
        a told planned: down; a told the lock may be kept for; pass 60s; called release 0; called renew 0; a locks
        a unlocks done; a locks; keep is-up; keep says denied; a keeps 600s fails Denied
        a told planned: denied; a told the lock is free when its lease ends"
    }

    /// The renewal names the former request.
    fn a_renewal_under_way_that_finds_nothing_is_no_loss() {
        THREADS "a locks; renew takes 2s; renew says lost; pass 9698ms; at renew 9698ms; a keeps 600s done; pass 30s
        stats lost 0"
    }
}

#[test]
fn an_attempt_without_an_answer_is_repeated_with_its_number_and_for_what_is_left_then() {
    let mut scene = Scene::of(&THREADS);
    scene.play("a locks; asked acquire; keep says down*3; a keeps 600s done 75ms..150ms; called keep 4");
    let asked: Vec<u64> = scene.world.store.asked().into_iter().map(|asked| asked.number).collect();
    assert!(asked.is_sorted_by(|one, other| one >= other), "{asked:?}");
    assert!(asked[0] == 600_000 && (599_850..=599_925).contains(&asked[3]), "{asked:?}");
    let mut keepers = std::mem::take(&mut scene.world.store.plan().keepers);
    keepers.dedup();
    assert_eq!(keepers.len(), 1);
    scene.ends();
}
