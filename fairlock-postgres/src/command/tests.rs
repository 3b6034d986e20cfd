//! Commands whose decision has an earlier time than they.

use fairlock_core::backend::{Acquired, Withdrawn};
use fairlock_rules::{Presence, StoreContext};

use super::*;
use crate::test_values::{LEASE, SECOND, ask, hold, lock};

/// The longest time by which they may have come later.
const LATE: Duration = SECOND;

/// Leases and places of commands that come late last longer, and their clients hear of what they asked for.
#[test]
fn what_comes_late_lasts_for_its_whole_time() {
    let (lock, [ann, bob], mut entry) = (lock("x"), ["a:1", "b:1"].map(OwnerId::new), LockEntry::default());
    let mut store_context = StoreContext::after(0);
    let mut lasts = |command: Command| {
        let now = SECOND * 1_700_000_000;
        let context = &mut store_context.operation(&lock.name, now, &|_| Presence::Present);
        let answer = command.decide(&mut entry, context, LATE).unwrap();
        let state = entry.inspect(context, &lock, 0..1).unwrap();
        let [lease, place] =
            [state.holder().unwrap().lease_left, state.queue.first().and_then(|one| one.place_left)];
        (answer, lease, place)
    };
    let (Answer::Acquired(Acquired::Granted { token, lease }), left, _) =
        lasts(Command::acquire(&ask(&lock, &ann, 1)))
    else {
        panic!("it is free")
    };
    assert_eq!((lease, left), (LEASE, Some(LEASE + LATE)));
    let (_, _, place) = lasts(Command::acquire(&ask(&lock, &bob, 2)));
    assert_eq!(place, Some(LEASE * 2 + LATE));
    let hold = hold(&lock, &ann, token);
    let (_, left, _) = lasts(Command::renew([Renew::Hold { hold, holds: 1, lease: LEASE * 2 }].iter()));
    assert_eq!(left, Some(LEASE * 2 + LATE));
    // The rest of a hold counts from the decision, which was earlier than the request.
    let (answer, ..) = lasts(Command::Withdraw((&ask(&lock, &ann, 1).place).into()));
    assert!(matches!(answer, Answer::Withdrawn(Withdrawn::WasGranted { lease, .. }) if lease == LEASE * 2));
    // Written even if nothing changes: its caller may believe in a hold.
    let (answer, left, _) = lasts(Command::Adopt((&hold).into(), OwnerId::new("c:1"), LEASE * 3));
    assert!(matches!(answer, Answer::Adopted(Renewal::Renewed)) && answer.is_promise());
    assert_eq!(left, Some(LEASE * 3 + LATE));
}
