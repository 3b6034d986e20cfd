//! The conformance suite on a cluster for Redisson's fair lock and the plain lock. Their scripts are those of a single
//! server, and the way to the nodes is that of the hand-off: so this is its own command.

use fairlock_tests::clustered::{Clustered, PLAIN, REDISSON};

mod redisson_fair {
    fairlock_conformance::conformance_tests!(super::Clustered<{ super::REDISSON }>);
}

mod plain {
    fairlock_conformance::conformance_tests!(super::Clustered<{ super::PLAIN }>);
}
