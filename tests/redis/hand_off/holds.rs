//! Holds: counted without a round trip, renewed until their release and no longer, and reported in time when lost.

use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlock::{Error, LostCause};
use fairlock_tests::{Alone, Monitor, RedisServer, assert_no_residue};

use crate::support::{SLACK, SOON, client, granted, lock, request, scripts_run, short_lease, take};

#[test]
fn re_entry_costs_no_round_trip_and_is_seen_after_the_next_renewal() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = lock(&server, "again");
    take(&ours).unlock().unwrap(); // loads the scripts
    let outermost = take(&ours);
    let count = || lock(&server, "again").inspect().unwrap().holder().unwrap().hold_count;
    assert_eq!(count(), 1);
    let before = scripts_run(&server);
    let mut guards = Vec::new();
    for _ in 0..100 {
        guards.push(ours.lock().unwrap());
        guards.push(ours.try_lock().unwrap().guard().unwrap());
        guards.pop().unwrap().unlock().unwrap();
    }
    assert_eq!(ours.hold_count(), 101);
    assert_eq!(scripts_run(&server), before);
    outermost.renew().unwrap();
    assert_eq!(count(), 101);
    let before = scripts_run(&server);
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    assert_eq!(scripts_run(&server), before);
    outermost.unlock().unwrap();
    assert_eq!(scripts_run(&server), before + 1);
    assert_no_residue(&server, &[]);
}

/// With a lease of 400 ms, the watchdog renews after 133 ms, and the holds end about then. So releases and renewals
/// meet often.
#[test]
fn no_renewal_of_a_hold_is_sent_after_its_unlock_has_returned() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = short_lease(&server.url(), Duration::from_millis(400));
    let monitor = Monitor::start(&server);
    thread::scope(|scope| {
        for number in 0..32 {
            let (ours, server) = (&ours, &server);
            scope.spawn(move || {
                let (lock, mut side) = (ours.fair_lock(&format!("race-{number}")).unwrap(), server.con());
                for turn in 0..15 {
                    let guard = take(&lock);
                    let token = guard.token();
                    thread::sleep(Duration::from_micros(113_000 + (turn * 7919 + number * 1237) % 40_000));
                    match guard.unlock() {
                        // A busy machine loses holds with such a lease; those are not renewed either.
                        Ok(()) | Err(Error::Lost(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    redis::cmd("ECHO").arg(format!("returned {token}")).exec(&mut side).unwrap();
                }
            });
        }
    });
    thread::sleep(Duration::from_millis(400)); // three renewal periods, in which nothing may happen
    let (mut returned, mut renewed) = (HashSet::new(), 0);
    for line in monitor.until_now(&server) {
        let Some((_, command)) = line.split_once("] ") else { continue };
        let words: Vec<&str> = command.trim_matches('"').split("\" \"").collect();
        match words[..] {
            ["ECHO", marker] => drop(returned.insert(marker.trim_start_matches("returned ").to_owned())),
            // The renewal of holds: their locks, count, lease, and as many holds as locks.
            ["EVALSHA", _, n, ref rest @ ..] if rest.last().is_some_and(|hold| hold.ends_with(' ')) => {
                let n: usize = n.parse().unwrap();
                for hold in rest.iter().skip(n + 2) {
                    let token = hold.trim_end().rsplit(' ').next().unwrap();
                    renewed += 1;
                    assert!(!returned.contains(token), "renewed after its unlock had returned: {line}");
                }
            }
            _ => {}
        }
    }
    assert_eq!(returned.len(), 32 * 15);
    assert!(renewed > 50, "only {renewed} renewals, too few to meet releases");
    drop(ours);
    assert_no_residue(&server, &[]);
}

/// When a key ends, by the server's wall clock: PEXPIRETIME, which Redis 6.2 lacks. Negative for a key without TTL.
const ENDS: &str = "local left, time = redis.call('PTTL', KEYS[1]), redis.call('TIME') \
    return left < 0 and left or time[1] * 1000 + math.floor(time[2] / 1000) + left";

fn wall_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn a_maximum_hold_ends_renewals_and_every_report_of_the_loss_agrees() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = short_lease(&server.url(), Duration::from_millis(900));
    let (tell, told) = channel();
    ours.on_lost(move |lost| tell.send(lost.clone()).unwrap());
    let limit = Duration::from_millis(1600);
    let asked = wall_ms();
    let guard = take(&ours.fair_lock("wedged").unwrap().max_hold(limit));
    let waiting = request(&client(&server.url(), Duration::from_millis(600)), "wedged");
    let (mut samples, mut latest) = (0, 0);
    loop {
        let (now, certain) = (wall_ms(), guard.valid_for());
        if certain.is_zero() {
            break;
        }
        // Renewals only prolong, so a later reading is never smaller.
        let ends: i64 = server.query(&["EVAL", ENDS, "1", "wedged"]);
        if ends > 0 && ends != latest {
            assert!(ends <= asked + 1600 + i64::try_from(SLACK.as_millis()).unwrap(), "too long");
            latest = ends;
        }
        if ends > 0 {
            let believed = now + i64::try_from(certain.as_millis()).unwrap();
            assert!(believed <= ends, "believed until {believed}, and the server ended it at {ends}");
            samples += 1;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert!(samples > 20 && latest > asked + 900, "{samples} samples, the last ended at {latest}");
    // The next holder meets no earlier one that still believes in its hold.
    let next = granted(waiting, SOON);
    assert!(guard.is_lost() && next.token() > guard.token());
    let by_channel = guard.lost().recv_timeout(SOON).unwrap();
    let by_callback = told.recv_timeout(SOON).unwrap();
    let token = guard.token();
    let Err(Error::Lost(by_unlock)) = guard.unlock() else { panic!("the unlock does not report the loss") };
    for lost in [by_channel, by_callback, by_unlock] {
        assert_eq!((lost.token, lost.cause), (token, LostCause::MaxHold));
    }
    assert_eq!(ours.stats().lost, 1);
    next.unlock().unwrap();
    drop(ours);
    assert_no_residue(&server, &[]);
}
