//! Many locks of one client whose server is far away.

use std::time::{Duration, Instant};

use fairlock::{Client, PostgresBackend};
use fairlock_tests::locks::take_now;
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, by_threads};
use log::LevelFilter;

use super::support::{SOON, ms, request, server, through, until_nothing_left};

/// Half a round trip.
const WAY: Duration = ms(8);

/// How many waits, and how many read locks, of a client with this lease and place. A step for each of them takes longer than a place
/// lasts. `FAIRLOCK_FAR=2000` makes so many, with the default times, which takes a minute.
fn scale() -> (usize, Duration, Duration) {
    let many = std::env::var("FAIRLOCK_FAR").ok().and_then(|many| many.parse().ok());
    let [lease, place] = [many.map_or(4, |_| 30), many.map_or(3, |_| 5)].map(Duration::from_secs);
    (many.unwrap_or(300), lease, place)
}

/// Places and holds that do not stand in columns are renewed in steps of many locks.
#[test]
fn many_waits_and_readers_far_from_the_server_lose_nothing() {
    let _alone = Alone::here();
    keep_log_lines(LevelFilter::Info);
    let proxy = Proxy::start(server().port());
    let theirs = Client::new(PostgresBackend::connect(&server().url()).unwrap()).unwrap();
    let ours = PostgresBackend::connect(&through(server(), &proxy)).unwrap();
    let (many, lease, place) = scale();
    let names: Vec<_> = (0..many).map(|number| number.to_string()).collect();
    let ours = Client::builder(ours).lease(lease).place_ttl(place);
    let ours = ours.slow_wait(Duration::from_secs(3600)).build().unwrap(); // these waits are slow on purpose
    let held = by_threads(names.clone(), |name| take_now(&theirs, &name));
    let waiting = by_threads(names.clone(), |name| request(&ours, &name));
    let reading = by_threads(names.clone(), |name| {
        let lock = ours.rw_lock(format!("read {name}")).unwrap().owned_by(&ours.new_owner()).unwrap();
        lock.read().unwrap()
    });
    let lines = log_lines("").len();
    proxy.set_all(&Traffic::ALL, Rule::Delay(WAY));
    let (until, mut seen) = (Instant::now() + lease + lease / 4, 0);
    while Instant::now() < until {
        for name in &names {
            let state = theirs.fair_lock(name).unwrap().admin().inspect().unwrap();
            assert_eq!((state.queue_length, state.absent), (1, 0), "lock {name}");
            seen += 1;
        }
        assert_eq!(reading.iter().filter(|guard| guard.is_lost()).count(), 0);
    }
    assert_eq!(log_lines("")[lines..].concat(), "", "log lines");
    assert!(seen > many);
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    for (held, waiting) in held.into_iter().zip(waiting) {
        held.unlock().unwrap();
        drop(waiting);
    }
    drop(reading);
    ours.shutdown_within(SOON).unwrap(); // a drop begins to tell the server for 100 ms only
    until_nothing_left(server());
}
