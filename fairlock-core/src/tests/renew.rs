//! A holder renews its hold itself.

use super::store::{LEASE, Op, down};
use super::support::{S, World, ms};
use crate::backend::Renewal;
use crate::{Error, LostCause};

/// What is certain of a lease of 30 s: all but 1 % and 2 ms.
const CERTAIN: std::time::Duration = ms(29_698);

#[test]
fn a_renewal_tells_for_how_long_the_hold_is_certain() {
    let world = World::new();
    let guard = world.lock("renewed").lock().unwrap();
    world.clock.advance(5 * S);
    assert_eq!(guard.valid_for(), CERTAIN - 5 * S);
    assert_eq!(guard.renew().unwrap(), CERTAIN);
    assert_eq!((guard.valid_for(), world.client.stats().renewals), (CERTAIN, 1));
    assert_eq!(world.store.ops(), [Op::Acquire, Op::Renew]);
}

#[test]
fn what_is_certain_counts_from_before_the_renewal_was_sent() {
    let world = World::without_watchdog();
    let guard = world.lock("slow").lock().unwrap();
    world.store.delay(Op::Renew, 2 * S);
    let ((renewed, _kept), took) = world.run(move || (guard.renew(), guard));
    assert_eq!((renewed.unwrap(), took), (CERTAIN - 2 * S, 2 * S));
}

#[test]
fn a_renewal_that_is_answered_when_its_own_time_is_over_is_a_loss() {
    for (takes, is_lost) in [(CERTAIN - ms(1), false), (CERTAIN, true), (LEASE, true)] {
        let world = World::without_watchdog();
        let guard = world.lock("too slow").lock().unwrap();
        world.store.delay(Op::Renew, takes);
        let ((renewed, guard), _) = world.run(move || (guard.renew(), guard));
        match renewed {
            Ok(left) => assert!(!is_lost && left == ms(1), "{left:?}"),
            Err(Error::Lost(lost)) => assert!(is_lost && lost.cause == LostCause::NotRenewed),
            Err(error) => panic!("{error}"),
        }
        assert_eq!((guard.is_lost(), world.client.stats().lost), (is_lost, u64::from(is_lost)));
    }
}

#[test]
fn a_renewal_of_a_hold_that_is_gone_is_a_loss() {
    let world = World::new();
    let guard = world.lock("gone").lock().unwrap();
    world.store.plan().renew.push_back(Ok(Renewal::Lost));
    assert!(matches!(guard.renew(), Err(Error::Lost(lost)) if lost.cause == LostCause::Taken));
    assert!(guard.is_lost());
    assert!(matches!(guard.renew(), Err(Error::Lost(_))), "told again");
    assert_eq!((world.store.times(Op::Renew).len(), world.client.stats().lost), (1, 1));
}

#[test]
fn a_renewal_without_an_answer_or_with_a_senseless_one_changes_nothing() {
    let world = World::new();
    let guard = world.lock("senseless").lock().unwrap();
    world.clock.advance(S);
    let waiting = Renewal::Waiting { rank: 0, recheck_in: S, latest: 1 };
    world.store.plan().renew.extend([down(), Ok(waiting)]);
    for said in ["planned: down", "the answer makes no sense"] {
        let Err(Error::Unavailable { source, .. }) = guard.renew() else { panic!("it was renewed") };
        assert_eq!(source.message(), said);
    }
    assert_eq!((guard.valid_for(), world.client.stats().renewals), (CERTAIN - S, 0));
}
