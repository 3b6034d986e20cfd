//! The conformance suite on a cluster, for the hand-off. `tests/conformance/` has the other disciplines.

use fairlock_tests::clustered::{Clustered, HAND_OFF};

fairlock_conformance::conformance_tests!(Clustered<HAND_OFF>, exclusive);
// A single server runs all of these with the same scripts; here they are one case for each script.
fairlock_conformance::conformance_tests!(Clustered<HAND_OFF>:
    kinds_of_one_name_never_hold_together
    readers_behind_a_writer_enter_together
    a_blocked_head_that_leaves_lets_the_others_in
    a_dead_reader_ends_nobody_elses_hold
    one_of_five_is_taken_by_force
);
