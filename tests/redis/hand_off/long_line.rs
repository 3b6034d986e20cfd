//! What reading a line of a hundred thousand costs the server: commands and bytes, as it counts them.

use std::collections::BTreeMap;

use fairlock::{Client, Discipline, Lock, LockGuard, OwnerId, RedisBackend, Waiter};
use fairlock_tests::{Alone, RedisServer};

use crate::support::{SOON, all_calls};

const WAITERS: u64 = 100_000;
const CLIENT: &str = "00000000-0000-4000-8000-000000000000";

/// Adds places of owners 1 to 100,000 that live for an hour, as `acquire` writes them.
const HAND_OFF_LINE: &str = "local now = tonumber(redis.call('TIME')[1]) * 1000 \
    for at = ARGV[1], ARGV[2] do \
      local member = string.format('00000000-0000-4000-8000-000000000000:%d:%016x', at, at) \
      redis.call('ZADD', KEYS[1], at, member) \
      redis.call('HSET', KEYS[2], member, string.format('%.0f 30000 %.0f a test', now + 3600000, now)) \
    end";
const REDISSON_LINE: &str = "local now = tonumber(redis.call('TIME')[1]) * 1000 \
    for at = ARGV[1], ARGV[2] do \
      local owner = '00000000-0000-4000-8000-000000000000:' .. at \
      redis.call('RPUSH', KEYS[1], owner) \
      redis.call('ZADD', KEYS[2], string.format('%.0f', now + 3600000 + at), owner) \
    end";

fn owner(number: u64) -> OwnerId {
    OwnerId::new(&format!("{CLIENT}:{number}"))
}

/// Discipline, the script that fills its line, and the line's keys.
type Kind = (Discipline, &'static str, [&'static str; 2]);
const HAND_OFF: Kind =
    (Discipline::HandOff, HAND_OFF_LINE, ["fairlock_line:{long}", "fairlock_record:{long}"]);
const REDISSON: Kind =
    (Discipline::Redisson, REDISSON_LINE, ["redisson_lock_queue:{long}", "redisson_lock_timeout:{long}"]);

/// A server with the line of a held lock.
struct Crowded {
    server: RedisServer,
    backend: RedisBackend,
    lock: Lock,
    _guard: LockGuard,
}

impl Crowded {
    fn new((discipline, fill, [line, places]): Kind) -> Crowded {
        let server = RedisServer::start();
        // What is counted is what the calls cost, not how long a busy machine lets one of them wait.
        let backend = RedisBackend::builder(&server.url()).discipline(discipline).response_timeout(SOON);
        let backend = backend.connect().unwrap();
        let lock = Client::new(backend.clone()).unwrap().fair_lock("long").unwrap();
        let guard = lock.lock().unwrap();
        // A part at a time: on a busy machine the whole takes longer than a call may.
        for first in (1..WAITERS).step_by(5000) {
            let [first, last] = [first, first + 4999].map(|number| number.to_string());
            server.query::<()>(&["EVAL", fill, "2", line, places, &first, &last]);
        }
        Crowded { server, backend, lock, _guard: guard }
    }
}

impl Drop for Crowded {
    fn drop(&mut self) {
        self.server.query::<()>(&["FLUSHALL", "ASYNC"]);
    }
}

/// The commands that the server executed for `what`, including those in scripts, and the bytes that it sent.
fn cost<T>(server: &RedisServer, what: impl FnOnce() -> T) -> (T, BTreeMap<String, u64>, u64) {
    let sent = || -> u64 {
        let stats: String = server.query(&["INFO", "stats"]);
        let sent = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        sent.unwrap().parse().unwrap()
    };
    let (calls_before, _, before) = (all_calls(server), sent(), sent());
    let result = what();
    // INFO itself sends some kilobytes.
    let after = sent();
    let mut calls = all_calls(server);
    calls.iter_mut().for_each(|(name, n)| *n -= calls_before.get(name).unwrap_or(&0));
    calls.retain(|name, n| *n > 0 && name != "info");
    (result, calls, after - before)
}

#[track_caller]
fn assert_little(calls: &BTreeMap<String, u64>, sent: u64, commands: u64, kilobytes: u64) {
    assert!(calls.values().sum::<u64>() <= commands, "{calls:?}");
    assert!(sent <= 1000 * (kilobytes + 10), "{sent} bytes");
}

#[test]
fn no_inspection_of_a_line_of_a_hundred_thousand_reads_all_of_it() {
    let _alone = Alone::here();
    for kind in [HAND_OFF, REDISSON] {
        let crowded = Crowded::new(kind);
        let Crowded { server, backend, lock, .. } = &crowded;
        let (locked, calls, sent) = cost(server, || lock.is_locked().unwrap());
        assert!(locked);
        assert_little(&calls, sent, 50, 1);

        let (state, calls, sent) = cost(server, || lock.inspect().unwrap());
        assert_eq!((state.line_length, state.line.len()), (WAITERS, 100));
        assert_eq!(state.line[0].owner, owner(1));
        assert_little(&calls, sent, 150, 20);

        // As much as one call reads, at any start.
        for from in [0, WAITERS / 2, WAITERS - 500] {
            let (state, calls, sent) = cost(server, || lock.inspect_line(from..u64::MAX).unwrap());
            assert_eq!((state.line_length, state.line.len()), (WAITERS, 500));
            assert_eq!(state.line[499].owner, owner(from + 500));
            assert_little(&calls, sent, 550, 100);
        }

        let (locks, calls, sent) = cost(server, || backend.locks(None).unwrap());
        assert_eq!((locks.len(), locks[0].1.line_length, locks[0].1.line.len()), (1, WAITERS, 0));
        assert_little(&calls, sent, 100, 2);
    }
}

/// A waiter from a listing is named by its request. If only the owner is known, the line is searched.
#[test]
fn a_place_in_a_line_of_a_hundred_thousand_is_taken_without_reading_the_line() {
    let _alone = Alone::here();
    let crowded = Crowded::new(HAND_OFF);
    let Crowded { server, lock, .. } = &crowded;
    let there = |waiter: &Waiter| {
        lock.inspect_line(WAITERS / 2 - 3..WAITERS / 2 + 3)
            .unwrap()
            .line
            .iter()
            .any(|one| one.owner == waiter.owner)
    };
    let waiter = lock.inspect_line(WAITERS / 2..WAITERS / 2 + 1).unwrap().line.remove(0);
    assert!(there(&waiter));
    let (kicked, calls, sent) = cost(server, || lock.kick(&waiter).unwrap());
    assert!(kicked && !there(&waiter));
    assert_little(&calls, sent, 50, 1);

    let ((rank, waiter), calls, _) = cost(server, || lock.find_waiter(&owner(60_000)).unwrap().unwrap());
    assert_eq!((rank, &waiter.owner), (59_998, &owner(60_000)));
    let pages = calls["evalsha"];
    // And renewals of the hold.
    assert!((81..=100).contains(&pages), "{pages} pages of 500 from the tail to the waiter");
    let each = calls.values().sum::<u64>() / pages;
    assert!(each <= 520, "{each} commands in a call");
}
