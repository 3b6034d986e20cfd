//! The conformance suite, on one cluster for all cases: it is emptied before each of them.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::{Clock, LockKind};
use fairlock_core::conformance::{Harness, Promise};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::{Alone, Cluster};

use crate::support::builder;

/// Ended by its guards: statics are not dropped.
static CLUSTER: OnceLock<Cluster> = OnceLock::new();

struct Clustered<const FAIR: bool> {
    cluster: &'static Cluster,
    _alone: Alone,
}

impl<const FAIR: bool> Harness for Clustered<FAIR> {
    fn new() -> Self {
        let alone = Alone::here();
        let cluster = CLUSTER.get_or_init(|| Cluster::start(Replicas::None));
        cluster.nodes.iter().for_each(|node| node.query::<()>(&["FLUSHALL"]));
        Clustered { cluster, _alone: alone }
    }

    fn kind(&self) -> LockKind {
        if FAIR { LockKind::Fair } else { LockKind::Plain }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(builder(self.cluster).connect().unwrap())
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

    fn promises(&self, _promise: Promise) -> bool {
        FAIR
    }

    fn keeps(&self, name: &str) -> bool {
        !matches!(name, "{" | "}" | "{}")
    }

    fn assert_nothing_is_left(&self, _name: &str) {
        self.cluster.assert_no_residue();
    }
}

mod hand_off {
    fairlock_core::conformance_tests!(super::Clustered<true>);
}

mod plain {
    fairlock_core::conformance_tests!(super::Clustered<false>);
}
