//! Which phase may follow which: what the `debug_assert!` of `Claim::enter` refuses.

use super::super::{End, Leaving, Phase, Waiting};

#[test]
fn no_claim_that_is_over_or_leaves_waits_again() {
    let waiting = || Phase::Waiting(Waiting::of_maker());
    let (leaving, over) = (|| Phase::Leaving(Leaving::default()), || Phase::Over(End::default()));
    assert!(!over().may_become(&waiting()) && !leaving().may_become(&waiting()));
    assert!(!over().may_become(&leaving()) && !waiting().may_become(&waiting()));
    assert!(waiting().may_become(&leaving()) && leaving().may_become(&over()) && over().may_become(&over()));
}
