//! For which calls a fast part is tried.

use fairlock_core::backend::{Acquire, LockId};
use fairlock_core::{FencingToken, LockKind, OwnerId};

use super::super::{acquire, release, renew};
use crate::row::{LONGEST, moment};
use crate::tests::{LEASE, SECOND, ask, hold, lock, soon, stage, take};

/// An attempt in vain would cost a round trip.
#[test]
fn nothing_is_attempted_that_only_a_step_can_do() {
    let ((backend, _con), ann, fair) = (stage(), OwnerId::new("a:1"), lock("x"));
    let (store, semaphore) = (&backend.0, LockId::new(fair.name.clone(), LockKind::Semaphore { permits: 2 }));
    take(&backend, &fair, &ann); // which tells the clock
    store.recent.forget_busy();
    let tries = |ask: &Acquire<'_>| acquire(store, ask, soon()).is_some();
    let plain = ask(&fair, &ann, 1);
    let [mut again, mut two, mut nul, mut endless] = [plain; 4];
    (again.place.ticket, two.place.units, nul.label) = (1, 2, "a\0b");
    endless.lease = moment(LONGEST) + SECOND;
    assert!(tries(&plain));
    assert_eq!([ask(&semaphore, &ann, 1), again, two, nul, endless].each_ref().map(tries), [false; 5]);
    for (lock, is_tried) in [(&fair, true), (&semaphore, false)] {
        let hold = hold(lock, &ann, FencingToken::new(1));
        let tried = [release(store, &hold), renew(store, &hold, 1, LEASE)].map(|attempt| attempt.is_some());
        assert_eq!(tried, [is_tried; 2], "{lock:?}");
    }
    store.recent.is_busy(&fair.name);
    store.recent.is_waited_for(&fair.name);
    assert!(!tries(&plain) && release(store, &hold(&fair, &ann, FencingToken::new(1))).is_none());
}
