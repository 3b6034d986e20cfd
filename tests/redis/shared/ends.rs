//! Each hold has its own end: what is over frees its units once, and ends nobody else's hold.

use std::time::Duration;

use fairlock::backend::{Acquire, Acquired, Backend, Released, Renew, Renewal, Wait};
use fairlock_tests::eventually;

use crate::support::{HOLDS, NAME, World};

#[test]
fn a_renewal_raises_its_own_end_only() {
    let world = World::with(3);
    let mut short = world.asker(1, 1);
    short.lease = Duration::from_secs(5);
    let long = world.asker(2, 1);
    let (_, token) = (world.granted(&short), world.granted(&long));
    let ends = || world.server.query::<Vec<(String, u64)>>(&["ZRANGE", HOLDS, "0", "-1", "WITHSCORES"]);
    let before = ends();
    std::thread::sleep(Duration::from_millis(5)); // the server's clock has milliseconds
    assert_eq!(world.renew_hold(&long, token), Renewal::Renewed);
    let after = ends();
    assert_eq!(before[0], after[0]);
    assert!(after[1].1 > before[1].1);
    // A late renewal with a shorter lease shortens nothing.
    let mut hurried = long.clone();
    hurried.lease = Duration::from_secs(31);
    assert_eq!(world.renew_hold(&hurried, token), Renewal::Renewed);
    assert_eq!(ends(), after);
}

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
fn a_hold_that_is_over_frees_its_units_and_ends_no_other() {
    let world = World::with(3);
    let [dead, live, next] = [(1, 1), (2, 2), (3, 1)].map(|(n, takes)| world.asker(n, takes));
    let (gone, kept) = (world.granted(&dead), world.granted(&live));
    world.queued(&next);
    world.end(&dead);
    assert!(matches!(world.heartbeat(&next), Renewal::Granted { .. }));
    assert_eq!(world.holders(), [2, 3]);
    assert_eq!(world.release(&dead, gone), Released::NotHeld);
    assert_eq!(world.holders(), [2, 3], "its units were freed once");
    assert_eq!(world.renew_hold(&live, kept), Renewal::Renewed);
}

#[test]
fn a_hold_that_is_over_is_not_renewed_whether_it_was_dropped_or_not() {
    let world = World::with(2);
    let one = world.asker(1, 1);
    let token = world.granted(&one);
    world.end(&one);
    assert_eq!(world.renew_hold(&one, token), Renewal::Lost);
    assert_eq!(world.holders(), []);
    assert_eq!(world.renew_hold(&one, token), Renewal::Lost);
    assert_eq!(world.release(&one, token), Released::NotHeld);
    // The same request may have the lock again, by a greater token, and takes its unit once.
    assert!(world.granted(&one) > token);
    assert_eq!(world.holders(), [1]);
}

#[test]
fn a_request_whose_own_hold_is_over_takes_its_units_once_however_many_are_over() {
    let world = World::with(400);
    let askers: Vec<_> = (1..=300).map(|number| world.asker(number, 1)).collect();
    askers.iter().for_each(|asker| _ = world.granted(asker));
    // The last one sorts behind all that one script drops.
    let scores = |asker| format!("{}:{}", asker_owner(asker), asker_request(asker));
    for asker in &askers {
        world.server.query::<()>(&["ZADD", HOLDS, "XX", "1", &scores(asker)]);
    }
    world.server.query::<()>(&["ZADD", HOLDS, "XX", "2", &scores(&askers[299])]);
    world.granted(&askers[299]);
    assert!(world.holders().ends_with(&[300]));
    // All is dropped by those that come, 128 at a time.
    let all = world.asker(999, 400);
    world.queued(&all);
    world.queued(&all);
    assert_eq!(world.holders(), [300]);
}

fn asker_owner(asker: &crate::support::Asker) -> &str {
    asker.owner.as_str()
}

fn asker_request(asker: &crate::support::Asker) -> String {
    asker.request.to_string()
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
fn the_first_in_line_looks_at_the_earliest_end() {
    let world = World::with(2);
    let (mut soon, late) = (world.asker(1, 1), world.asker(2, 1));
    soon.lease = Duration::from_secs(3);
    world.granted(&soon);
    world.granted(&late);
    let (first, second) = (world.asker(3, 2), world.asker(4, 1));
    let (rank, look) = world.queued(&first);
    assert!(rank == 0 && look > Duration::from_secs(2) && look <= Duration::from_millis(3001), "{look:?}");
    // Its place lasts for a minute, so its next heartbeat comes later than that.
    let (rank, look) = world.queued(&second);
    assert!(rank == 1 && look <= Duration::from_millis(3001), "{look:?}");
    let look = |of| match world.heartbeat(of) {
        Renewal::Waiting { recheck_in, .. } => recheck_in,
        other => panic!("{other:?}"),
    };
    assert!(look(&first) <= Duration::from_millis(3001));
    // Of one client's waiters the first is told.
    let place = |of| world.place(of, fairlock::backend::Wait::Forever);
    let both = [&first, &second].map(|of| Renew::Place { place: place(of), lease: of.lease });
    let answers = world.backend.renew(world.client, &both).into_iter().map(Result::unwrap);
    let looks: Vec<_> = answers
        .map(|answer| match answer {
            Renewal::Waiting { recheck_in, .. } => recheck_in,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(looks[0] <= Duration::from_millis(3001) && looks[1] == Duration::MAX, "{looks:?}");
    // A look less than 50 ms before the next one would ask too often.
    world.server.query::<()>(&["ZADD", HOLDS, "XX", &(now(&world) + 5).to_string(), &member(&soon)]);
    let (_, look) = world.queued(&first);
    assert!(look >= Duration::from_millis(50) || look.is_zero(), "{look:?}");
}

fn member(of: &crate::support::Asker) -> String {
    format!("{}:{}", of.owner, of.request)
}

fn now(world: &World) -> u64 {
    let (seconds, micros): (u64, u64) = world.server.query(&["TIME"]);
    seconds * 1000 + micros / 1000
}

#[test]
fn both_keys_end_by_themselves_a_second_after_the_last_hold() {
    let world = World::with(2);
    let (mut soon, mut late) = (world.asker(1, 1), world.asker(2, 1));
    (soon.lease, late.lease) = (Duration::from_millis(300), Duration::from_millis(900));
    world.granted(&late);
    world.granted(&soon);
    for key in [NAME, HOLDS] {
        let left: u64 = world.server.query(&["PTTL", key]);
        assert!((1500..=1900).contains(&left), "{key}: {left} ms");
    }
    eventually(Duration::from_secs(10), "they are gone", || {
        world.server.query::<i64>(&["EXISTS", NAME, HOLDS]) == 0
    });
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

#[test]
fn tokens_grow_over_an_emptied_server() {
    let world = World::with(2);
    let [one, two, three, four] = [1, 2, 3, 4].map(|number| world.asker(number, 1));
    let last = world.granted(&one).max(world.granted(&two));
    world.server.query::<()>(&["FLUSHALL"]);
    // A request that was told a ticket is left to the general part of the script.
    let mut place = world.place(&three, Wait::No);
    place.ticket = last.get();
    let answer = world.backend.acquire(&Acquire::new(place, three.lease)).unwrap();
    let Acquired::Granted { token, .. } = answer else { panic!("{answer:?}") };
    assert!(token > last && world.granted(&four) > token);
}

#[test]
fn a_waiter_whose_grant_is_over_is_next_again() {
    let world = World::with(1);
    let [one, two, three] = [1, 2, 3].map(|number| world.asker(number, 1));
    let token = world.granted(&one);
    let Acquired::Queued { ticket, .. } = world.ask(&two).unwrap() else { panic!() };
    world.queued(&three);
    world.release(&one, token);
    // Its process stood still during all of its hold.
    world.end(&two);
    assert!(matches!(world.heartbeat(&three), Renewal::Granted { .. }));
    let last = world.asker(4, 1);
    world.queued(&last);
    let mut place = world.place(&two, fairlock::backend::Wait::Forever);
    place.ticket = ticket;
    let ask = fairlock::backend::Acquire::new(place, two.lease);
    assert!(matches!(world.backend.acquire(&ask).unwrap(), Acquired::Queued { rank: 0, .. }));
    assert_eq!(world.line(), [2, 4]);
}
