//! Each kind of message reaches the node that has the lock.

use fairlock::settings::Discipline;
use fairlock_tests::cluster::Replicas;
use fairlock_tests::messages::every_message;
use fairlock_tests::{Alone, Cluster};

#[test]
fn every_kind_of_message_reaches_the_node_of_its_lock() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    for node in &cluster.nodes {
        for discipline in [Discipline::HandOff, Discipline::Redisson] {
            let name = |prefix: &str| cluster.name_at(node, &format!("{discipline:?}:{prefix}"));
            every_message(&|| cluster.builder(), discipline, &name);
        }
    }
    cluster.assert_no_residue();
}
