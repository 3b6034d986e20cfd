//! Locks of several units: what an owner gets beside what it has.

use super::*;

const READ: u32 = 1;
const WRITE: u32 = u32::MAX;

#[test]
fn a_read_under_the_own_write_is_a_re_entry() {
    let case = Case::of_units(LockKind::ReadWrite, WRITE);
    assert!(matches!(case.claim.join(LockKind::ReadWrite, READ, case.start), Joined::Waiting));
    case.step(NOW);
    case.granted(NOW);
    let joined = case.claim.join(LockKind::ReadWrite, READ, case.start);
    assert!(matches!(joined, Joined::Held { token: TOKEN }));
}

#[test]
fn a_write_under_the_own_read_is_refused_and_counts_nothing() {
    let case = Case::of_units(LockKind::ReadWrite, READ);
    let write = || case.claim.join(LockKind::ReadWrite, WRITE, case.start);
    assert!(matches!(write(), Joined::TooFew), "it would wait for its own request");
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(write(), Joined::TooFew));
    assert_eq!(case.claim.hold_count(case.start), 1);
}

/// More permits than the owner has are refused and as many are a re-entry.
#[test]
fn more_permits_than_the_owner_has_are_refused() {
    let kind = LockKind::Semaphore { permits: 5 };
    let case = Case::of_units(kind, 2);
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.claim.join(kind, 3, case.start), Joined::TooFew));
    assert!(matches!(case.claim.join(kind, 2, case.start), Joined::Held { .. }));
}

/// A lock of another kind is refused while the claim lasts and waits for its end.
#[test]
fn a_lock_of_another_kind_is_refused_while_the_claim_lasts() {
    let case = Case::of_units(LockKind::Semaphore { permits: 5 }, 5);
    let others = [LockKind::Semaphore { permits: 1 }, LockKind::ReadWrite, LockKind::Fair, LockKind::Plain];
    for kind in others {
        assert!(matches!(case.claim.join(kind, 1, case.start), Joined::OtherKind), "{kind}");
    }
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.claim.join(LockKind::Fair, 1, case.start), Joined::OtherKind));
    case.claim.unlock(case.start);
    assert!(matches!(case.claim.join(LockKind::Fair, 1, case.start), Joined::Leaving));
}

#[test]
fn a_hold_whose_time_is_over_refuses_nothing() {
    let case = Case::of_units(LockKind::ReadWrite, READ);
    case.step(NOW);
    case.granted(NOW);
    let over = case.start + 2 * LEASE;
    assert!(matches!(case.claim.join(LockKind::ReadWrite, WRITE, over), Joined::Expired));
}

#[test]
fn handles_of_kinds_that_agree_are_one_lock() {
    let (case, eight) =
        (Case::of_units(LockKind::Semaphore { permits: 5 }, 1), LockKind::Semaphore { permits: 8 });
    assert!(
        matches!(case.claim.join(eight, 1, case.start), Joined::OtherNumber),
        "the wait is for one of five"
    );
    case.step(NOW);
    case.granted(NOW);
    assert!(matches!(case.claim.join(eight, 1, case.start), Joined::Held { .. }));
    let case = Case::new();
    assert!(matches!(case.claim.join(LockKind::Plain, 1, case.start), Joined::Waiting));
}

#[test]
fn a_request_and_its_hold_name_its_units() {
    let case = Case::of_units(LockKind::Semaphore { permits: 5 }, 3);
    assert_eq!((case.claim.place().units, case.claim.hold(TOKEN).units), (3, 3));
}
