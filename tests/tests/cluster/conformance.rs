//! The conformance suite on a cluster, for the hand-off. `tests/conformance/` has the other disciplines.

use fairlock_tests::clustered::{Clustered, HAND_OFF};

fairlock_core::conformance_tests!(Clustered<HAND_OFF>);
