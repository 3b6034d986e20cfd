//! What reading a queue of a hundred thousand costs the server: commands and bytes, as it counts them.

use std::time::Duration;

use fairlock::owner::OwnerId;
use fairlock::settings::Discipline;
use fairlock::{Client, Guard, Lock, RedisBackend};
use fairlock_tests::Alone;
use fairlock_tests::server_state::add_dead_places;

use super::support::{RedisServer, calls_in, patient};

const WAITERS: u64 = 100_000;
const CLIENT: &str = "00000000-0000-4000-8000-000000000000";

/// Adds places to Redisson's queue that live for an hour.
const REDISSON_QUEUE: &str = "local now = tonumber(redis.call('TIME')[1]) * 1000 \
    for at = ARGV[1], ARGV[2] do \
      local owner = '00000000-0000-4000-8000-000000000000:' .. at \
      redis.call('RPUSH', KEYS[1], owner) \
      redis.call('ZADD', KEYS[2], string.format('%.0f', now + 3600000 + at), owner) \
    end";

fn owner(number: u64) -> OwnerId {
    OwnerId::new(&format!("{CLIENT}:{number}"))
}

/// A server with the queue of a held lock.
struct Crowded {
    server: RedisServer,
    backend: RedisBackend,
    lock: Lock,
    _guard: Guard,
}

impl Crowded {
    fn new(discipline: Discipline) -> Crowded {
        let server = RedisServer::start();
        let backend = patient(&server.url()).discipline(discipline);
        let backend = backend.connect().unwrap();
        let lock = Client::new(backend.clone()).unwrap().fair_lock("long").unwrap();
        let guard = lock.lock().unwrap();
        if discipline == Discipline::HandOff {
            add_dead_places(&server, "long", 1..=WAITERS, Duration::from_secs(3600));
        } else {
            // A part at a time, as there.
            for first in (1..WAITERS).step_by(5000) {
                let [first, last] = [first, first + 4999].map(|number| number.to_string());
                let keys = ["redisson_lock_queue:{long}", "redisson_lock_timeout:{long}"];
                server.query::<()>(&["EVAL", REDISSON_QUEUE, "2", keys[0], keys[1], &first, &last]);
            }
        }
        Crowded { server, backend, lock, _guard: guard }
    }
}

impl Drop for Crowded {
    fn drop(&mut self) {
        self.server.query::<()>(&["FLUSHALL", "ASYNC"]);
    }
}

/// Its commands and bytes are few.
#[track_caller]
fn cheap<T>(server: &RedisServer, commands: u64, kilobytes: u64, what: impl FnOnce() -> T) -> T {
    let sent = || -> u64 {
        let stats: String = server.query(&["INFO", "stats"]);
        let sent = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        sent.unwrap().parse().unwrap()
    };
    let ((result, sent), calls) = calls_in(server, || {
        let before = sent();
        let result = what();
        (result, sent() - before)
    });
    assert!(calls.values().sum::<u64>() <= commands, "{calls:?}");
    // INFO itself sends some kilobytes.
    assert!(sent <= 1000 * (kilobytes + 10), "{sent} bytes");
    result
}

/// No inspection of a queue of a hundred thousand reads all of it.
#[test]
fn no_inspection_reads_all_of_a_long_queue() {
    let _alone = Alone::here();
    for discipline in [Discipline::HandOff, Discipline::Redisson] {
        let crowded = Crowded::new(discipline);
        let Crowded { server, backend, lock, .. } = &crowded;
        assert!(cheap(server, 50, 1, || lock.is_locked().unwrap()));
        let state = cheap(server, 150, 20, || lock.admin().inspect().unwrap());
        assert_eq!((state.queue_length, state.queue.len()), (WAITERS, 100));
        assert_eq!(state.queue[0].owner, owner(1));
        // As much as one call reads, at any start.
        for from in [0, WAITERS / 2, WAITERS - 500] {
            let state = cheap(server, 550, 100, || lock.admin().inspect_queue(from..u64::MAX).unwrap());
            assert_eq!((state.queue_length, state.queue.len()), (WAITERS, 500));
            assert_eq!(state.queue[499].owner, owner(from + 500));
        }
        let locks = cheap(server, 100, 2, || backend.locks(None).unwrap());
        assert_eq!((locks.len(), locks[0].1.queue_length, locks[0].1.queue.len()), (1, WAITERS, 1));
    }
}
