//! What every backend has to do, one named case for each behaviour.
//!
//! A backend's tests implement [`Harness`] and write `fairlock_conformance::conformance_tests!(MyHarness);` in a separate
//! module, which makes one `#[test]` for each case. [`Harness::promises`] says what a store or discipline does not promise; the
//! cases about that check only that nothing breaks.
//!
//! | room | cases |
//! | --- | --- |
//! | `exclusion`, `order`, `holds`, `waits` | what every lock promises: one holder, the order, leases and losses, the end of a wait |
//! | `readers`, `permits`, `shared`, `units` | locks that several owners hold |
//! | `tasks` | the same by futures: waits, work, terms, several locks, the calls of a client |
//! | `lock_all`, `insight` | several locks at once, what an operator sees and does |
//! | `adopted` | holds that go from one client to another |
//! | `conditions` | asks that are declined: once in a period, and with too many ahead |
//! | `requests`, `tickets`, `releases` | repeats, forgotten places and late releases, by calls of the backend itself |
//! | `forward`, `time` | no cases: a backend that changes a few methods of another backend; the time of a store with a clock of its own |

mod adopted;
mod conditions;
mod exclusion;
pub mod forward;
mod holds;
mod insight;
mod lock_all;
mod order;
mod permits;
mod readers;
mod releases;
mod requests;
mod shared;
mod tasks;
mod tickets;
pub mod time;
mod units;
mod waits;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub use adopted::*;
pub use conditions::*;
pub use exclusion::*;
pub use holds::*;
pub use insight::*;
pub use lock_all::*;
pub use order::*;
pub use permits::*;
pub use readers::*;
pub use releases::*;
pub use requests::*;
pub use shared::*;
pub use tasks::*;
pub use tickets::*;
pub use units::*;
pub use waits::*;

use fairlock_core::backend::Backend;
use fairlock_core::{Client, Clock, Lock, LockKind};

/// The lease of the clients in the cases, and the time to live of most places. No case waits for its end in real time: [`Harness::pass`].
pub const LEASE: Duration = Duration::from_secs(30);
/// How long the hold or the place of a dead process lasts.
pub const DEAD: Duration = Duration::from_secs(15);
/// How much later than at its end something is certainly over.
pub const SLACK: Duration = Duration::from_secs(1);
/// How long a case waits in real time for a message or another thread, before it fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Something that one discipline promises and another does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Promise {
    /// Waiters get the lock in the order in which they asked, and `inspect` shows the queue.
    Order,
    /// A waiter that died delays the others by its place's time to live at most.
    DeadWaitersArePassedOver,
    /// The releaser itself makes the next waiter the holder.
    HandOff,
    /// Locks of both kinds exclude each other.
    BothKinds,
}

/// A store under test: fresh, or not used by another test with the same names.
pub trait Harness: Sync {
    /// Starts the store.
    fn new() -> Self;

    /// The locks that the cases take.
    fn kind(&self) -> LockKind;

    /// A new connection to the store, as another process would make one. Its response time-out is long, since a busy machine is no
    /// reason to fail, and at most half of [`LEASE`].
    fn backend(&self) -> Arc<dyn Backend>;

    /// The clock of the clients: a manual one. With the system's clock the cases take an hour.
    fn clock(&self) -> Clock;

    /// Lets time pass for clients and store, and every thread then does what is due. A store with a clock of its own is moved beside
    /// the clients' clock, or what it keeps is made older: [`time`].
    fn pass(&self, time: Duration);

    /// Removes the hold of the lock from the store, and tells no client.
    fn lose_hold(&self, name: &str);

    /// Whether the discipline makes this promise.
    fn promises(&self, promise: Promise) -> bool;

    /// Whether the store can keep a lock of that name. It has to refuse the other names.
    fn keeps(&self, _name: &str) -> bool {
        true
    }

    /// Whether a client that does not wait any more gets messages at once: its hold was taken by force, or an unknown request was
    /// granted. A client that polls learns of the force with its next renewal, and a grant to an unknown request ends with its
    /// lease.
    fn tells_unasked(&self) -> bool {
        true
    }

    /// Panics if the store keeps anything about the lock that should be gone when no client holds it or waits.
    fn assert_nothing_is_left(&self, name: &str);
}

/// A new client, as another process would have one.
pub(crate) fn client(harness: &impl Harness) -> Client {
    client_with(harness, LEASE)
}

/// A new client with another time to live for its places.
pub(crate) fn client_with(harness: &impl Harness, place_ttl: Duration) -> Client {
    // The clock may have gone on by more than the usual limit of an outage when a store has not answered once.
    let builder = Client::builder(harness.backend()).clock(harness.clock()).outage_limit(LEASE * 1000);
    builder.lease(LEASE).place_ttl(place_ttl).build().unwrap()
}

/// A client that listens.
pub(crate) fn client_to_be_told(harness: &impl Harness) -> Client {
    let client = client(harness);
    wait_once(harness, &client);
    client
}

/// Lets those renewals come that tell a holder of a force, if no message does.
pub(crate) fn until_told(harness: &impl Harness) {
    if !harness.tells_unasked() {
        harness.pass(LEASE / 2);
    }
}

pub(crate) fn lock_of(harness: &impl Harness, client: &Client, name: &str) -> Lock {
    client.lock_of(name, harness.kind()).unwrap()
}

/// A handle of the lock in a new client.
pub(crate) fn lock(harness: &impl Harness, name: &str) -> Lock {
    lock_of(harness, &client(harness), name)
}

/// Lets the client wait for a lock once, since a store where listening is dear begins with that.
pub(crate) fn wait_once(harness: &impl Harness, client: &Client) {
    let (theirs, ours) = (lock(harness, "wait once"), lock_of(harness, client, "wait once"));
    let guard = theirs.lock().unwrap();
    let request = ours.request().unwrap();
    guard.unlock().unwrap();
    request.wait().unwrap().unlock().unwrap();
}

/// Waits in real time until `n` requests stand in the queue, where the queue can be seen.
pub(crate) fn until_in_queue(harness: &impl Harness, lock: &Lock, n: usize) {
    if harness.promises(Promise::Order) {
        until("they stand in the queue", || lock.admin().inspect().unwrap().queue_length == n as u64);
    }
}

/// Waits until `n` blocked callers are known to wait: by the queue, or by a manual clock. With a real clock and without a
/// queue that can't be known, but there time goes on by itself.
pub(crate) fn until_waiting(harness: &impl Harness, lock: &Lock, n: usize) {
    until_in_queue(harness, lock, n);
    if let Some(clock) = harness.clock().manual() {
        clock.wait_for_waiters(n);
    }
}

/// Polls until `done`, in real time.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < give_up_at, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Makes one `#[test]` for each case of the suite, run with this [`Harness`](crate::Harness). `, exclusive`: only the cases about
/// locks of the harness's kind, each with one holder. `, shared`: only the cases about read-write locks and semaphores, which do
/// not depend on the harness's kind. After a colon: cases by their names.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:ty) => {
        $crate::conformance_tests! { $harness, exclusive }
        $crate::conformance_tests! { $harness, shared }
    };
    ($harness:ty, exclusive) => {
        $crate::conformance_tests! { $harness:
            a_lock_is_held_by_one_owner_at_a_time
            a_released_lock_is_free
            threads_of_many_clients_never_overlap
            fair_and_plain_handles_of_one_name_exclude_each_other
            two_names_are_two_locks_whatever_their_characters
            re_entry_is_counted_and_the_last_unlock_gives_the_lock_back
            tokens_grow_and_stay_the_same_in_a_re_entry
            the_watchdog_keeps_a_hold
            a_fixed_lease_ends_by_itself
            an_inner_unlock_keeps_the_end_of_the_outermost_lease
            a_capped_hold_ends_at_its_limit
            a_hold_that_ends_while_it_is_released_was_not_lost
            a_hold_that_is_taken_while_it_is_released_is_lost
            a_hold_that_vanished_is_reported_on_every_way
            a_hold_can_be_taken_by_force_and_its_holder_is_told
            a_leaked_hold_is_released_by_unlock
            an_owner_is_independent_of_threads
            renew_asks_the_server_and_prolongs
            an_adopted_hold_goes_on_under_its_token
            the_release_of_an_adopter_hands_the_lock_on
            a_hold_that_nobody_adopts_ends_with_its_lease
            an_adopter_is_told_of_the_loss
            what_names_the_former_owner_finds_no_hold
            an_adopted_hold_ends_with_the_lease_of_its_adopter
            a_hold_of_two_guards_is_not_handed_over
            a_task_adopts_what_a_task_hands_over
            a_lock_is_granted_once_in_a_period
            a_lock_is_granted_again_a_time_after_its_last_grant
            from_the_first_ask_for_a_period_on_any_grant_counts
            a_noted_grant_outlasts_other_uses_of_the_lock
            a_repeat_of_the_granted_ask_keeps_its_hold
            a_declined_request_leaves_nothing
            a_newcomer_with_too_many_ahead_is_declined
            inspect_shows_holder_and_count
            inspect_reads_the_part_of_the_queue_that_is_asked_for
            an_absent_waiter_is_marked_and_not_counted
            waiters_get_the_lock_in_the_order_in_which_they_asked
            no_newcomer_passes_a_waiter
            a_live_waiter_keeps_its_place_however_long_the_holder_works
            a_waiter_that_leaves_is_passed_over
            a_dead_waiter_delays_the_others_by_one_place_at_most
            the_next_waiter_gets_the_lock_of_a_dead_holder
            a_repeated_acquire_is_granted_once
            a_repeated_request_keeps_its_one_place
            a_release_that_names_an_old_hold_touches_nothing
            a_request_takes_over_no_hold_of_its_owner
            a_repeat_shortens_no_lease
            a_withdrawal_after_the_grant_says_so
            a_heartbeat_after_the_withdrawal_leaves_nothing
            renewal_answers_each_item_for_itself
            requests_that_go_together_are_answered_each_for_itself
            holds_that_go_together_are_released_each_for_itself
            a_repeated_release_of_many_touches_no_later_hold
            a_place_that_is_gone_is_put_back_at_its_ticket
            a_ticket_that_the_lock_has_not_given_out_is_not_believed
            a_waiter_that_comes_back_to_a_free_lock_has_it_at_once
            a_waiter_whose_grant_is_over_is_next
            a_heartbeat_after_the_release_of_its_hold_leaves_nothing
            a_wake_up_is_enough_and_nothing_is_found_by_polling
            a_timed_wait_ends_on_time_and_leaves_nothing
            a_cancelled_wait_ends_at_once_and_leaves_nothing
            a_wait_cancelled_during_its_request_leaves_no_hold_behind
            an_attempt_leaves_no_place
            a_request_says_when_it_is_decided
            a_dropped_request_leaves_the_queue
            two_waits_of_one_owner_share_a_place
            lock_all_takes_all_or_none
            lock_alls_never_deadlock
            shutdown_ends_holds_and_waits
            a_drain_ends_waits_and_lets_holders_finish
            tasks_get_the_lock_in_the_order_of_their_first_polls
            a_dropped_future_of_a_task_leaves_nothing
            work_of_a_task_is_dropped_when_its_hold_is_lost
            a_task_that_leads_asks_again_after_a_loss
            a_dropped_lock_all_of_a_task_gives_all_back
            a_task_looks_and_ends_its_client
        }
    };
    ($harness:ty, shared) => {
        $crate::conformance_tests! { $harness:
            kinds_of_one_name_never_hold_together
            tokens_grow_over_readers_and_writers
            a_grant_that_its_client_does_not_know_is_given_back
            readers_hold_together
            a_writer_holds_alone
            sections_of_writers_never_overlap_any_other
            a_reader_does_not_pass_a_waiting_writer
            a_read_again_passes_a_waiting_writer
            a_read_under_the_own_write_is_a_re_entry
            a_write_under_the_own_read_is_misuse
            readers_behind_a_writer_enter_together
            many_readers_enter_by_one_release
            a_blocked_head_that_leaves_lets_the_others_in
            a_dead_head_lets_the_others_in
            a_dead_reader_delays_a_writer_by_its_lease
            a_dead_reader_ends_nobody_elses_hold
            no_more_permits_than_there_are
            a_large_request_is_not_passed_by_small_ones
            a_try_does_not_pass_a_large_request
            a_release_grants_all_that_fit
            each_client_goes_by_its_own_number_of_permits
            a_greater_number_behind_is_served_by_a_heartbeat
            more_than_there_are_is_refused
            one_of_five_is_taken_by_force
            adopted_permits_are_taken_once
            an_adopted_reader_reads_and_a_writer_writes
            permits_are_re_entrant_for_an_explicit_owner_only
            a_wait_goes_by_one_number_of_permits
            a_client_that_ends_gives_all_its_permits_back
            a_repeated_grant_takes_its_units_once
            a_repeated_release_frees_once
            releases_that_go_together_let_the_others_in_once
            a_repeated_withdrawal_lets_the_others_in_once
            an_expired_hold_is_not_renewed
            heartbeats_and_asks_grant_all_that_fit
            an_attempt_for_units_leaves_no_place
            the_next_of_a_client_looks_when_its_first_has_left
        }
    };
    ($harness:ty: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::$case(&<$harness as $crate::Harness>::new());
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_list() {
        let list = include_str!("lib.rs");
        let files = [
            include_str!("adopted.rs"),
            include_str!("conditions.rs"),
            include_str!("exclusion.rs"),
            include_str!("holds.rs"),
            include_str!("insight.rs"),
            include_str!("lock_all.rs"),
            include_str!("order.rs"),
            include_str!("permits.rs"),
            include_str!("readers.rs"),
            include_str!("releases.rs"),
            include_str!("requests.rs"),
            include_str!("shared.rs"),
            include_str!("tasks.rs"),
            include_str!("tickets.rs"),
            include_str!("units.rs"),
            include_str!("waits.rs"),
        ];
        for line in files.iter().flat_map(|file| file.lines()) {
            if let Some(rest) = line.strip_prefix("pub fn ") {
                let name = rest.split(['(', '<']).next().unwrap();
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list");
            }
        }
    }
}
