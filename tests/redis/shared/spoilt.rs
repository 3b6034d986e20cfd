//! Keys that others have deleted or changed, and more of everything than one script looks at: the lock goes on by what is left.

use std::thread;
use std::time::Duration;

use fairlock::admin::LockKind;
use fairlock::backend::{Acquire, Acquired, Backend, ForceReleased, Renewal, Wait, only};
use fairlock_tests::look_until;
use fairlock_tests::server_state::{queue, scripts_run};

use super::support::{Asker, HOLDS, NAME, Told, World};

const QUEUE: &str = "fairlock_queue:{pool}";
const RECORD: &str = "fairlock_record:{pool}";

fn as_semaphore(world: &mut World, permits: u32) {
    world.lock.kind = LockKind::Semaphore { permits };
}

fn member(of: &Asker) -> String {
    format!("{}:{}", of.owner, of.request)
}

/// Any number of holds that are over says nothing of the capacity. A script drops 128 of them. The rest must not keep the lock at
/// their capacity.
#[test]
fn holds_that_are_over_say_nothing_of_the_capacity() {
    let mut world = World::with(200);
    let dead: Vec<_> = (1..=200).map(|number| world.asker(number, 1)).collect();
    dead.iter().for_each(|asker| _ = world.granted(asker));
    dead.iter().for_each(|asker| world.end(asker));
    as_semaphore(&mut world, 300);
    world.granted(&world.asker(201, 1));
    assert_eq!(world.holders(), [201]);
}

/// Nothing tells whose units they are, so they are free.
#[test]
fn units_whose_ends_were_lost_are_not_kept_for_anybody() {
    let world = World::with(5);
    let [one, other] = [1, 2].map(|number| world.asker(number, 1));
    world.granted(&one);
    world.granted(&other);
    world.server.query::<()>(&["DEL", HOLDS]);
    world.granted(&world.asker(3, 5));
    assert_eq!(world.holders(), [3]);
}

/// A waiter that is silent for days has named its time to live. One with a short time comes and goes, also where the clock has come to
/// another multiple of 10,000 s, at which the cases of the scripts set the times to live.
#[test]
fn a_short_wait_does_not_shorten_the_life_of_a_queue() {
    let world = World::of(LockKind::Fair);
    const DAYS: Duration = Duration::from_secs(10 * 24 * 3600);
    let ask = |of: &Asker, ttl| {
        let mut place = world.place(of, Wait::Forever);
        place.ttl = ttl;
        only(world.backend.acquire(&[Acquire::new(place, of.lease)])).unwrap();
    };
    ask(&world.asker(1, 1), DAYS);
    ask(&world.asker(2, 1), DAYS);
    let lives = |what: &str| {
        for key in [QUEUE, RECORD] {
            let left: u128 = world.server.query(&["PTTL", key]);
            assert!(left > 11 * DAYS.as_millis(), "{what}: {key} lives for {left} ms");
        }
    };
    lives("a long wait");
    let short = world.asker(3, 1);
    ask(&short, Duration::from_secs(5));
    lives("and a short one");
    world.leave(&short);
    lives("that has ended");
    let queue: String = world.server.query(&["HGET", RECORD, "queue"]);
    let mut numbers: Vec<u64> = queue.split(' ').map(|word| word.parse().unwrap()).collect();
    numbers[1] -= 10_000_000;
    let earlier = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    world.server.query::<()>(&["HSET", RECORD, "queue", &earlier]);
    ask(&short, Duration::from_secs(5));
    lives("and another one later");
}

#[test]
fn a_lost_or_senseless_number_of_units_taken_is_no_error() {
    for spoil in [&["HDEL", NAME, "used"][..], &["HSET", NAME, "used", "x"]] {
        let world = World::with(5);
        let first = world.asker(1, 1);
        let token = world.granted(&first);
        world.server.query::<()>(spoil);
        world.granted(&world.asker(2, 1));
        world.server.query::<()>(spoil);
        world.release(&first, token);
        world.granted(&world.asker(3, 1));
    }
}

/// The cases read the number as the rule does: no script can have written it, so it counts for nothing.
#[test]
fn an_impossible_number_of_units_taken_counts_for_nothing() {
    for used in ["-3", "1e300"] {
        for is_released in [false, true] {
            let world = World::with(5);
            let first = world.asker(1, 1);
            let token = world.granted(&first);
            if is_released {
                world.queued(&world.asker(2, 5));
            }
            world.server.query::<()>(&["HSET", NAME, "used", used]);
            if is_released {
                world.release(&first, token);
                assert!(matches!(world.next_told(), Told::Granted(2, _)), "{used}");
            } else {
                world.granted(&world.asker(2, 5));
            }
            world.queued(&world.asker(3, 1));
        }
    }
}

/// An operator lets a hold of all units last for good. A waiter is told a time that is far away: the clients would take a negative
/// time for "at the next heartbeat".
#[test]
fn who_waits_for_an_end_that_never_comes_is_told_a_time() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    for end in ["inf", "1e300"] {
        let world = World::with(5);
        let lasting = world.asker(1, 5);
        world.granted(&lasting);
        world.server.query::<()>(&["ZADD", HOLDS, "XX", end, &member(&lasting)]);
        let Acquired::Busy { recheck_in: of_a_try } = world.try_once(&world.asker(2, 1)).unwrap() else {
            panic!("{end}")
        };
        let (_, of_a_waiter) = world.queued(&world.asker(3, 1));
        for recheck_in in [of_a_try, of_a_waiter] {
            assert!(recheck_in > YEAR && recheck_in < Duration::MAX, "{end}: {recheck_in:?}");
        }
    }
}

/// One script looks at 500 holders, by their ends. The next one begins where the last end was, and ends with a fraction, which another
/// program has written, may lie in the same millisecond.
#[test]
fn a_force_skips_no_hold_whose_end_has_a_fraction() {
    let world = World::of(LockKind::ReadWrite);
    let askers: Vec<_> = (1..=501).map(|number| world.asker(number, 1)).collect();
    askers.iter().for_each(|asker| _ = world.granted(asker));
    for (asker, end) in askers[499..].iter().zip(["1900000000000.2", "1900000000000.7"]) {
        world.server.query::<()>(&["ZADD", HOLDS, "XX", end, &member(asker)]);
    }
    assert_eq!(world.backend.force_release(&world.lock).unwrap(), ForceReleased::Taken);
    assert_eq!(world.holders(), [0; 0]);
}

/// More holds than one script looks at have one end, and were granted while the lock was taken by force: each script looks at other holds,
/// though no hold of these is taken.
#[test]
fn a_force_ends_although_many_new_holds_have_one_end() {
    let world = World::of(LockKind::ReadWrite);
    let askers: Vec<_> = (1..=600).map(|number| world.asker(number, 1)).collect();
    for asker in &askers {
        let token = world.granted(asker).get();
        let later = format!("1 {} 1 0 ", token + 1_000_000_000_000);
        world.server.query::<()>(&["HSET", NAME, &member(asker), &later]);
        world.server.query::<()>(&["ZADD", HOLDS, "XX", "1900000000000", &member(asker)]);
    }
    let World { server, backend, lock, .. } = &world;
    let before = scripts_run(server);
    thread::scope(|scope| {
        let force = scope.spawn(|| backend.force_release(lock).unwrap());
        look_until(Duration::from_secs(5), || force.is_finished().then_some(()));
        // Otherwise it finds no more holds now.
        server.query::<()>(&["DEL", NAME, HOLDS]);
        assert_eq!(force.join().unwrap(), ForceReleased::NotHeld);
    });
    assert_eq!(scripts_run(server) - before, 5, "the first one was not known");
}

/// An end that is no number of milliseconds leaves nothing half done. An operator lets a hold last for good, or another program
/// writes half milliseconds: a grant beside that hold is whole, the keys end, and the hold can be renewed and kept.
#[test]
fn an_end_that_is_no_whole_number_leaves_nothing_half_done() {
    for end in ["inf", "1e300", "1900000000000.5"] {
        let world = World::with(5);
        let [lasting, leaving, waiting] =
            [(1, 2), (2, 3), (3, 3)].map(|(number, units)| world.asker(number, units));
        let [token, other] = [&lasting, &leaving].map(|asker| world.granted(asker));
        world.queued(&waiting);
        for key in [NAME, HOLDS] {
            world.server.query::<()>(&["PERSIST", key]);
        }
        world.server.query::<()>(&["ZADD", HOLDS, "XX", end, &member(&lasting)]);
        world.release(&leaving, other);
        assert_eq!(world.holders(), [1, 3], "{end}");
        assert!(queue(&world.server, NAME).is_empty(), "{end}");
        for key in [NAME, HOLDS] {
            assert!(world.server.query::<i64>(&["PTTL", key]) > 0, "{end}: {key}");
        }
        let Told::Granted(3, third) = world.next_told() else { panic!("{end}") };
        for key in [NAME, HOLDS] {
            world.server.query::<()>(&["PERSIST", key]);
        }
        assert_eq!(world.renew_hold(&waiting, third), Renewal::Renewed, "{end}");
        assert_eq!(world.renew_hold(&lasting, token), Renewal::Renewed, "{end}");
        for key in [NAME, HOLDS] {
            assert!(world.server.query::<i64>(&["PTTL", key]) > 0, "{end}: {key}");
        }
    }
}

/// Those that can't be reached and may not know their tickets stay for a place's time, wherever they stand; one behind them is not hidden.
#[test]
fn hundreds_that_may_not_know_their_tickets_keep_their_places() {
    let world = World::of(LockKind::Fair);
    let holder = world.asker(1, 1);
    let token = world.granted(&holder);
    let silent: Vec<_> = (2..602).map(|number| world.deaf(number, 1)).collect();
    silent.iter().for_each(|asker| _ = world.queued(asker));
    world.queued(&world.asker(602, 1));
    let places = queue(&world.server, NAME);
    world.release(&holder, token);
    assert!(matches!(world.next_told(), Told::Granted(602, _)));
    assert_eq!(queue(&world.server, NAME), places[..600]);
}
