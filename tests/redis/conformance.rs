//! The conformance suite on a real Redis, each case on a new server, whose clock stands still until the case lets time pass. After each
//! case nothing may be left: no key, no thread.
#![cfg(target_os = "linux")] // the server's clock is moved by a preloaded library

use std::sync::Arc;
use std::time::Duration;

use fairlock::RedisBackend;
use fairlock::admin::LockKind;
use fairlock::backend::Backend;
use fairlock::settings::{Clock, Discipline, Durability};
use fairlock::testing::ManualClock;
use fairlock_conformance::time::{Moved, pass_beside};
use fairlock_conformance::{Harness, LEASE, Promise};
use fairlock_tests::locks::patient;
use fairlock_tests::{Alone, RedisServer, assert_no_residue, keys_without_ttl};

const HAND_OFF: u8 = 0;
const REDISSON: u8 = 1;
const PLAIN: u8 = 2;
/// By hand-off, with `durable`, on a server whose past is known.
const DURABLE: u8 = 3;
/// A semaphore with one permit.
const PERMIT: u8 = 4;

/// A server, and locks by one of these rules.
struct Redis<const RULE: u8> {
    server: RedisServer,
    clock: ManualClock,
    _alone: Alone,
}

impl<const RULE: u8> Redis<RULE> {
    fn connect(&self) -> RedisBackend {
        let builder = patient(&self.server.url());
        let builder = match RULE {
            HAND_OFF | PERMIT => builder,
            DURABLE => builder.durable(Durability::default().trust(LEASE * 100)),
            _ => builder.discipline(Discipline::Redisson),
        };
        builder.connect().unwrap()
    }
}

impl<const RULE: u8> Harness for Redis<RULE> {
    fn new() -> Self {
        let (alone, server) = (Alone::here(), RedisServer::builder().moved_clock().start());
        let here = Redis { server, clock: ManualClock::new(), _alone: alone };
        if RULE == DURABLE {
            here.connect().begin_life().unwrap();
        }
        here
    }

    fn kind(&self) -> LockKind {
        match RULE {
            PLAIN => LockKind::Plain,
            PERMIT => LockKind::Semaphore { permits: 1 },
            _ => LockKind::Fair,
        }
    }

    /// Each client gets its own connections, as in another process.
    fn backend(&self) -> Arc<dyn Backend> {
        Moved::new(self.connect())
    }

    fn clock(&self) -> Clock {
        self.clock.clone().into()
    }

    fn pass(&self, time: Duration) {
        pass_beside(&self.clock, time, |step| self.server.pass(step));
    }

    fn lose_hold(&self, name: &str) {
        self.server.query::<()>(&["DEL", name]);
    }

    fn promises(&self, promise: Promise) -> bool {
        match promise {
            Promise::BothKinds => !matches!(RULE, DURABLE | PERMIT),
            Promise::Order => RULE != PLAIN,
            _ => !matches!(RULE, REDISSON | PLAIN),
        }
    }

    fn assert_nothing_is_left(&self, _name: &str) {
        assert_no_residue(&self.server, &[]);
    }
}

impl<const RULE: u8> Drop for Redis<RULE> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let left = keys_without_ttl(&self.server);
            assert!(left.is_empty(), "without a time to live, after the case: {left:?}");
        }
    }
}

mod hand_off {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::HAND_OFF }>);
}

/// A case for each message. All cases run at night.
#[cfg(not(feature = "night"))]
mod redisson_fair {
    fairlock_conformance::conformance_tests! { super::Redis<{ super::REDISSON }>:
        a_lock_is_held_by_one_owner_at_a_time
        waiters_get_the_lock_in_the_order_in_which_they_asked
        a_fixed_lease_ends_by_itself
        a_hold_can_be_taken_by_force_and_its_holder_is_told
        an_adopted_hold_ends_with_the_lease_of_its_adopter
        an_adopted_hold_goes_on_under_its_token
        what_names_the_former_owner_finds_no_hold
        a_lock_is_granted_once_in_a_period
        from_the_first_ask_for_a_period_on_any_grant_counts
        a_noted_grant_outlasts_other_uses_of_the_lock
        a_newcomer_with_too_many_ahead_is_declined
        a_request_takes_over_no_hold_of_its_owner
        a_release_that_names_an_old_hold_touches_nothing
        a_timed_wait_ends_on_time_and_leaves_nothing
        an_absent_waiter_is_marked_and_not_counted
    }
}

#[cfg(not(feature = "night"))]
mod redis_plain {
    fairlock_conformance::conformance_tests! { super::Redis<{ super::PLAIN }>:
        a_lock_is_held_by_one_owner_at_a_time
        a_fixed_lease_ends_by_itself
        a_hold_can_be_taken_by_force_and_its_holder_is_told
        an_adopted_hold_ends_with_the_lease_of_its_adopter
        an_adopted_hold_goes_on_under_its_token
        what_names_the_former_owner_finds_no_hold
        a_lock_is_granted_once_in_a_period
        from_the_first_ask_for_a_period_on_any_grant_counts
        a_noted_grant_outlasts_other_uses_of_the_lock
        a_wake_up_is_enough_and_nothing_is_found_by_polling
        a_timed_wait_ends_on_time_and_leaves_nothing
    }
}

#[cfg(feature = "night")]
mod redisson_fair {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::REDISSON }>);
}

#[cfg(feature = "night")]
mod redis_plain {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::PLAIN }>);
}

#[cfg(feature = "night")]
mod durable {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::DURABLE }>);
}

#[cfg(feature = "night")]
mod permit {
    fairlock_conformance::conformance_tests!(super::Redis<{ super::PERMIT }>, exclusive);
}
