//! An ask for once in a period is decided by the server's time of then.

use std::sync::atomic::Ordering;

use fairlock_core::backend::{Acquire, Declined, Since, Wait};

use super::*;

const PERIOD: Duration = Duration::from_secs(20);

fn run(backend: &PostgresBackend, owner: &OwnerId) -> Acquired {
    let once = lock("once");
    let mut ask: Acquire<'_> = ask(&once, owner, 1);
    ask.place.wait = Wait::No;
    ask.condition.not_granted = Some(Since::PeriodBegan(PERIOD));
    let answer = only(backend.acquire(&[ask])).unwrap();
    if let Acquired::Granted { token, .. } = answer {
        only(backend.release(&[hold(&once, owner, token)])).unwrap();
    }
    answer
}

/// Else a grant of the new period would have a time of the period before, and the period would have a second one.
#[test]
fn a_period_that_began_since_the_last_answer_counts() {
    let ((backend, mut con), [ann, bob]) = (stage(), ["ann:1", "bob:1"].map(OwnerId::new));
    con.script(STANDING_CLOCK, soon()).unwrap();
    backend.0.recent.stands.store(true, Ordering::Relaxed);
    let now = pass(&mut con, Duration::ZERO);
    let into = Duration::from_nanos((now.as_nanos() % PERIOD.as_nanos()) as u64);
    pass(&mut con, PERIOD - into - Duration::from_millis(1));
    take(&backend, &lock("other"), &ann); // tells the time
    let now = pass(&mut con, Duration::from_millis(2)); // which no answer has told
    let Acquired::Granted { token, .. } = run(&backend, &ann) else { panic!("it is the first") };
    assert!(moment(token.get().cast_signed()) >= now);
    assert!(matches!(run(&backend, &bob), Acquired::Declined(Declined::Granted(_))));
}

/// The first ask makes the store note grants, even if the ask finds the lock taken; and an answer that changes nothing is read.
#[test]
fn a_decline_is_read_and_the_first_ask_is_written() {
    let ((backend, mut con), [ann, bob]) = (stage(), ["ann:1", "bob:1"].map(OwnerId::new));
    let once = lock("once");
    let token = take(&backend, &once, &ann);
    let mut rev = || number(&mut con, "select rev from fairlock.lock");
    let before = rev();
    assert!(matches!(run(&backend, &bob), Acquired::Busy { .. }));
    assert!(rev() > before);
    only(backend.release(&[hold(&once, &ann, token)])).unwrap();
    assert!(matches!(run(&backend, &bob), Acquired::Granted { .. }));
    let before = rev();
    assert!(matches!(run(&backend, &ann), Acquired::Declined(_)));
    assert_eq!(rev(), before);
}
