//! Tokens grow after any fault of the server, and are exact.

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

use crate::support::{LONG, SOON, client, granted, lock, request, set_last_number, state, take, token_at};

#[test]
fn tokens_grow_over_an_emptied_and_over_a_restarted_server() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = lock(&server, "grow");
    let mut last = 0;
    let mut next = || {
        let guard = take(&ours);
        let token = guard.token().get();
        assert_eq!(token_at(&server, "grow"), Some(token));
        assert!(token > last, "{token} after {last}");
        last = token;
        guard.unlock().unwrap();
    };
    next();
    server.query::<()>(&["FLUSHALL"]);
    next();
    server.restart(); // without persistence: it comes back empty
    eventually(SOON, "the client has reconnected", || ours.is_locked().is_ok());
    next();
    server.query::<()>(&["DEL", "fairlock_record:{grow}"]);
    next();
    assert_no_residue(&server, &[]);
}

#[test]
fn tokens_grow_over_a_failover_that_lost_the_last_grants() {
    let _alone = Alone::here();
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    let ours = lock(&master, "moved");
    take(&ours).unlock().unwrap();
    replica.query::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let known = |server: &RedisServer| state(server, "moved")[0].parse::<u64>().ok();
    eventually(SOON, "the replica has the token", || known(&replica).is_some());
    // It is promoted before the last grants.
    replica.query::<()>(&["REPLICAOF", "NO", "ONE"]);
    for _ in 0..5 {
        take(&ours).unlock().unwrap();
    }
    let lost = known(&master).unwrap();
    assert!(known(&replica).unwrap() < lost);
    let after = take(&lock(&replica, "moved"));
    assert!(after.token().get() > lost);
    after.unlock().unwrap();
    assert_no_residue(&replica, &[]);
}

/// The sequence is ahead of the clock, as after a clock that was set back: each number is the last one plus one.
#[test]
fn numbers_near_two_to_the_power_of_52_are_exact() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let start = (1_u64 << 52) - 40;
    let sequence = "fairlock_record:{great}";
    set_last_number(&server, "great", start);
    server.query::<i64>(&["PEXPIRE", sequence, "60000"]);
    let ours = client(&server.url(), LONG);
    let lock = ours.fair_lock("great").unwrap();
    for number in 1..=5 {
        let guard = take(&lock);
        assert_eq!(guard.token().get(), start + number);
        assert_eq!(token_at(&server, "great"), Some(start + number));
        guard.unlock().unwrap();
    }
    // Tickets come from the same sequence: a token, three tickets, three tokens.
    let guard = take(&lock);
    let requests: Vec<_> = (0..3).map(|_| request(&ours, "great")).collect();
    let tickets: Vec<u64> = server
        .query::<Vec<String>>(&["ZRANGE", "fairlock_line:{great}", "0", "-1", "WITHSCORES"])
        .chunks(2)
        .map(|pair| pair[1].parse::<f64>().unwrap() as u64)
        .collect();
    assert_eq!(tickets, [start + 7, start + 8, start + 9]);
    guard.unlock().unwrap();
    for (request, number) in requests.into_iter().zip(10..) {
        let guard = granted(request, SOON);
        assert_eq!(guard.token().get(), start + number);
        guard.unlock().unwrap();
    }
    assert_no_residue(&server, &[]);
}

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// As after a clock that was three days ahead and was corrected. If the sequence were forgotten before the clock has
/// caught up, the next number would be smaller than the last.
#[test]
fn the_last_number_is_kept_for_a_day_after_the_clock_has_caught_up_with_it() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let redisson = RedisBackend::builder(&server.url()).discipline(Discipline::Redisson).connect().unwrap();
    let (ours, theirs) = (client(&server.url(), LONG), Client::new(redisson).unwrap());
    let locks = [
        ("hand-off", ours.fair_lock("hand-off").unwrap()),
        ("redisson", theirs.fair_lock("redisson").unwrap()),
        ("plain", ours.plain_lock("plain").unwrap()),
    ];
    for (name, lock) in locks {
        let sequence = format!("fairlock_record:{{{name}}}");
        let lasts = || server.query::<u64>(&["PTTL", &sequence]);
        take(&lock).unlock().unwrap();
        assert!((DAY - MINUTE..=DAY).contains(&lasts()), "{name}: {} ms without a jump", lasts());

        let (seconds, _): (u64, u64) = server.query(&["TIME"]);
        let ahead = seconds * 1_000_000 + 3 * DAY * 1000;
        set_last_number(&server, name, ahead);
        let guard = take(&lock);
        assert_eq!(guard.token().get(), ahead + 1);
        let expected = 4 * DAY - MINUTE..=4 * DAY + 1;
        assert!(expected.contains(&lasts()), "{name}: {} ms after a grant", lasts());
        // A ticket takes a number too.
        if name == "hand-off" {
            let waiting = request(&ours, name);
            assert!(expected.contains(&lasts()), "{} ms after a ticket", lasts());
            guard.unlock().unwrap();
            granted(waiting, SOON).unlock().unwrap();
        } else {
            guard.unlock().unwrap();
        }
        assert!(expected.contains(&lasts()), "{name}: {} ms at the end", lasts());
    }
    drop((ours, theirs));
    assert_no_residue(&server, &[]);
}
