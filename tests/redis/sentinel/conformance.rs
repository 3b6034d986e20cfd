//! The conformance suite behind sentinels, on one set for all cases; each case starts with it emptied.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::{Clock, LockKind};
use fairlock_conformance::{Harness, LEASE, Promise};
use fairlock_tests::{Alone, Sentinels, assert_no_residue};

use crate::builder;

/// Ended by its guards, since statics are not dropped.
static SENTINELS: OnceLock<Sentinels> = OnceLock::new();

struct Watched {
    sentinels: &'static Sentinels,
    _alone: Alone,
}

impl Harness for Watched {
    fn new() -> Self {
        let alone = Alone::here();
        let sentinels = SENTINELS.get_or_init(|| Sentinels::builder().steady().start());
        sentinels.servers[0].query::<()>(&["FLUSHALL"]);
        Watched { sentinels, _alone: alone }
    }

    fn kind(&self) -> LockKind {
        LockKind::Fair
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(builder(self.sentinels).response_timeout(LEASE / 2).connect().unwrap())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        self.sentinels.servers[0].query::<()>(&["DEL", name]);
    }

    fn promises(&self, _promise: Promise) -> bool {
        true
    }

    fn assert_nothing_is_left(&self, _name: &str) {
        assert_no_residue(&self.sentinels.servers[0], &[]);
    }
}

mod hand_off {
    fairlock_conformance::conformance_tests!(super::Watched, exclusive);
    // The scripts are those of a single server, which runs all of these.
    fairlock_conformance::conformance_tests!(super::Watched: readers_behind_a_writer_enter_together one_of_five_is_taken_by_force);
}
