//! The note of a lock's last grant outlasts a day, and the machine's boot.

use std::time::Duration;

use fairlock_core::OwnerId;
use fairlock_core::backend::{
    Acquire, Acquired, Backend, Declined, Hold, Place as Asked, RequestId, Since, Wait, only,
};

use super::files::lock;
use super::store::{DAYS, Place, make_old};
use crate::FileBackend;
use crate::machine::Machine;
use crate::wake_ups::sweep;

const REQUEST: RequestId = RequestId::new(1);
const MONTH: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Wants the lock once in a month. A grant is given back.
fn run(backend: &FileBackend, since: Since) -> Acquired {
    let (lock, owner) = (lock("monthly"), OwnerId::new("ann:1"));
    let mut place = Asked::new(&lock, &owner, REQUEST);
    place.wait = Wait::No;
    let mut ask = Acquire::new(place, Duration::from_secs(30));
    ask.condition.not_granted = Some(since);
    let answer = only(backend.acquire(&[ask])).unwrap();
    if let Acquired::Granted { token, .. } = answer {
        only(backend.release(&[Hold::new(&lock, &owner, REQUEST, token)])).unwrap();
    }
    answer
}

#[test]
fn a_file_with_a_note_that_lasts_is_not_swept() {
    let place = Place::new();
    let backend = place.open();
    let since = Since::Ago(MONTH);
    assert!(matches!(run(&backend, since), Acquired::Granted { .. }));
    make_old(&place.files("lock")[0], DAYS);
    sweep(&backend.files).unwrap();
    assert!(matches!(run(&backend, since), Acquired::Declined(Declined::Granted(_))));
}

/// Leases go by a clock that begins at the boot, periods by the wall clock.
#[test]
fn a_note_outlasts_the_boot() {
    let place = Place::new();
    let boot = |id| FileBackend::open_on(&place.0, Machine::of_boot(id)).unwrap();
    assert!(matches!(run(&boot(1), Since::Ago(MONTH)), Acquired::Granted { .. }));
    for id in [2, 3] {
        assert!(matches!(run(&boot(id), Since::Ago(MONTH)), Acquired::Declined(Declined::Granted(_))));
    }
    assert!(
        matches!(run(&boot(4), Since::Ago(Duration::ZERO)), Acquired::Granted { .. }),
        "the clock goes on"
    );
}
