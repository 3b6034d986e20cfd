//! Many locks of one client whose server is far away.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, PostgresBackend};
use fairlock_tests::locks::take_now;
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy};
use log::LevelFilter;

use crate::support::{ms, request, server, through, until_nothing_left};

/// How many waits, and how many read locks. A step for each of them takes longer than a place lasts.
const MANY: usize = 300;
/// Half a round trip.
const WAY: Duration = ms(8);
const PLACE: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(4);

/// Makes many of them, by some threads.
fn many<T: Send>(make: impl Fn(String) -> T + Sync) -> Vec<T> {
    let make = &make;
    thread::scope(|scope| {
        let part = |part: usize| {
            scope.spawn(move || (part..MANY).step_by(8).map(|n| make(format!("{n}"))).collect::<Vec<_>>())
        };
        let parts: Vec<_> = (0..8).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// Places and holds that do not stand in columns are renewed in steps of many locks.
#[test]
fn many_waits_and_readers_far_from_the_server_lose_nothing() {
    let _alone = Alone::here();
    keep_log_lines(LevelFilter::Info);
    let proxy = Proxy::start(server().port());
    let theirs = Client::new(PostgresBackend::connect(&server().url()).unwrap()).unwrap();
    let ours = PostgresBackend::connect(&through(server(), &proxy)).unwrap();
    let ours = Client::builder(ours).lease(LEASE).place_ttl(PLACE).build().unwrap();
    let held = many(|name| take_now(&theirs, &name));
    let waiting = many(|name| request(&ours, &name));
    let reading = many(|name| {
        let lock = ours.rw_lock(&format!("read {name}")).unwrap().owned_by(&ours.new_owner()).unwrap();
        lock.read().unwrap()
    });
    let lines = log_lines("").len();
    proxy.set_all(&Traffic::ALL, Rule::Delay(WAY));
    let (until, mut seen) = (Instant::now() + LEASE + LEASE / 4, 0);
    while Instant::now() < until {
        for name in 0..MANY {
            let state = theirs.fair_lock(&format!("{name}")).unwrap().inspect().unwrap();
            assert_eq!((state.line_length, state.absent), (1, 0), "lock {name}");
            seen += 1;
        }
        assert_eq!(reading.iter().filter(|guard| guard.is_lost()).count(), 0);
    }
    assert_eq!(log_lines("")[lines..].concat(), "", "log lines");
    assert!(seen > MANY);
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    for (held, waiting) in held.into_iter().zip(waiting) {
        held.unlock().unwrap();
        drop(waiting);
    }
    drop(reading);
    drop(ours);
    until_nothing_left(server());
}
