//! For which calls a fast part is tried, and what becomes of one that is refused.

use fairlock_core::backend::{Acquire, Acquired, Backend, Hold, LockId, RequestId, only};
use fairlock_core::{FencingToken, LockKind, OwnerId};

use super::super::{acquire, release, renew};
use crate::row::{LONGEST, moment};
use crate::tests::{LEASE, SECOND, ask, hold, lock, number, soon, stage, take};

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

/// A step answers what was refused, and nothing repeats what was sent to a session that has ended.
#[test]
fn a_refused_flight_is_left_to_a_step_unless_its_session_ended() {
    let ((backend, mut con), ann, fair) = (stage(), OwnerId::new("a:1"), lock("x"));
    only(backend.release(&[hold(&fair, &ann, take(&backend, &fair, &ann))])).unwrap();
    let fails = "create sequence writes; create function fail() returns trigger language plpgsql as $$ begin case nextval('writes') \
                 when 1 then raise 'not now'; when 3 then perform pg_terminate_backend(pg_backend_pid()); else null; end case; \
                 return new; end $$; create trigger fail before update on fairlock.lock for each row execute function fail()";
    con.script(fails, soon()).unwrap();
    backend.0.recent.forget_busy();
    let Acquired::Granted { token, .. } = only(backend.acquire(&[ask(&fair, &ann, 2)])).unwrap() else {
        panic!("it is free")
    };
    let held = Hold::new(&fair, &ann, RequestId::new(2), token);
    backend.0.recent.forget_busy();
    only(backend.release(&[held])).unwrap_err();
    assert_eq!(number(&mut con, "select last_value from writes"), 3);
}
