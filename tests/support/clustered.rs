//! A cluster as the conformance suite sees it: one for all cases of a program. Each case starts with it emptied.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use fairlock::backend::Backend;
use fairlock::{Clock, Discipline, LockKind, RedisBuilder};
use fairlock_conformance::{Harness, LEASE, Promise};

use crate::cluster::{Cluster, Replicas};
use crate::threads::Alone;

/// Ended by its guards, since statics are not dropped.
static CLUSTER: OnceLock<Cluster> = OnceLock::new();

/// The fair lock, by the hand-off.
pub const HAND_OFF: u8 = 0;
/// The fair lock, by Redisson's rules.
pub const REDISSON: u8 = 1;
/// The plain lock.
pub const PLAIN: u8 = 2;

/// Locks by one of the three rules.
#[derive(Debug)]
pub struct Clustered<const RULE: u8> {
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
        let urls = self.cluster.urls();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        Arc::new(
            RedisBuilder::cluster(&urls)
                .discipline(discipline)
                .response_timeout(LEASE / 2)
                .connect()
                .unwrap(),
        )
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
        match promise {
            Promise::BothKinds => true,
            Promise::Order => RULE == HAND_OFF || RULE == REDISSON,
            _ => RULE == HAND_OFF,
        }
    }

    fn keeps(&self, name: &str) -> bool {
        !matches!(name, "{" | "}" | "{}")
    }

    fn assert_nothing_is_left(&self, _name: &str) {
        self.cluster.assert_no_residue();
    }
}
