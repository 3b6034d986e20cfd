//! Each hold has its own end: what is over frees its units once, and ends no other hold.

use std::time::Duration;

use fairlock::backend::{Acquired, Renewal};

use super::support::{HOLDS, NAME, World};

/// A key that was made endless by hand is no reason to shorten the holds of others.
#[test]
fn a_grant_after_persist_cuts_no_other_hold() {
    let world = World::with(3);
    let (long, mut short) = (world.asker(1, 1), world.asker(2, 1));
    let token = world.granted(&long);
    for key in [NAME, HOLDS] {
        world.server.query::<()>(&["PERSIST", key]);
    }
    short.lease = Duration::from_secs(1);
    world.granted(&short);
    for key in [NAME, HOLDS] {
        let left: i64 = world.server.query(&["PTTL", key]);
        assert!(left == -1 || left > 50_000, "{key}: {left}");
    }
    world.end(&short);
    assert_eq!(world.renew_hold(&long, token), Renewal::Renewed);
}

#[test]
fn a_release_goes_on_until_all_that_is_over_is_dropped() {
    let world = World::with(301);
    let askers: Vec<_> = (1..=301).map(|number| world.asker(number, 1)).collect();
    let tokens: Vec<_> = askers.iter().map(|asker| world.granted(asker)).collect();
    let all = world.asker(999, 301);
    world.queued(&all);
    askers[1..].iter().for_each(|asker| world.end(asker));
    world.release(&askers[0], tokens[0]);
    assert_eq!(world.holders(), [999]);
}

#[test]
fn an_evicted_key_loses_the_holds_and_no_permit() {
    for key in [NAME, HOLDS] {
        let world = World::with(2);
        let [one, two, next] = [1, 2, 3].map(|number| world.asker(number, 1));
        let token = world.granted(&one);
        world.granted(&two);
        world.queued(&next);
        world.server.query::<()>(&["DEL", key]);
        assert_eq!(world.renew_hold(&one, token), Renewal::Lost);
        assert!(matches!(world.heartbeat(&next), Renewal::Granted { .. }));
        assert_eq!(world.holders(), [3], "without {key}");
        assert!(matches!(world.try_once(&world.asker(4, 1)).unwrap(), Acquired::Granted { .. }));
        assert!(matches!(world.try_once(&world.asker(5, 1)).unwrap(), Acquired::Busy { .. }));
        assert_eq!(world.holders(), [3, 4]);
    }
}
