//! The conformance suite, on one cluster for all cases; each case starts with it emptied.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::{Clock, Discipline, LockKind};
use fairlock_core::conformance::{Harness, Promise};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::{Alone, Cluster};

use crate::support::builder;

/// Ended by its guards, since statics are not dropped.
static CLUSTER: OnceLock<Cluster> = OnceLock::new();

const HAND_OFF: u8 = 0;
const REDISSON: u8 = 1;
const PLAIN: u8 = 2;

/// Locks by one of the three rules.
struct Clustered<const RULE: u8> {
    cluster: &'static Cluster,
    _alone: Alone,
}

impl<const RULE: u8> Harness for Clustered<RULE> {
    fn new() -> Self {
        let alone = Alone::here();
        let cluster = CLUSTER.get_or_init(|| Cluster::start(Replicas::None));
        cluster.nodes.iter().for_each(|node| node.query::<()>(&["FLUSHALL"]));
        Clustered { cluster, _alone: alone }
    }

    fn kind(&self) -> LockKind {
        if RULE == PLAIN { LockKind::Plain } else { LockKind::Fair }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        let discipline = if RULE == HAND_OFF { Discipline::HandOff } else { Discipline::Redisson };
        Arc::new(builder(self.cluster).discipline(discipline).connect().unwrap())
    }

    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    fn lose_hold(&self, name: &str) {
        self.cluster.owner_of(name).query::<()>(&["DEL", name]);
    }

    fn promises(&self, promise: Promise) -> bool {
        RULE == HAND_OFF || RULE == REDISSON && promise == Promise::Order
    }

    fn keeps(&self, name: &str) -> bool {
        !matches!(name, "{" | "}" | "{}")
    }

    fn assert_nothing_is_left(&self, _name: &str) {
        self.cluster.assert_no_residue();
    }
}

mod hand_off {
    fairlock_core::conformance_tests!(super::Clustered<{ super::HAND_OFF }>);
}

mod redisson_fair {
    fairlock_core::conformance_tests!(super::Clustered<{ super::REDISSON }>);
}

mod plain {
    fairlock_core::conformance_tests!(super::Clustered<{ super::PLAIN }>);
}
