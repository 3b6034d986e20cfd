//! Many locks of one client whose server is far away.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, OwnedGuard, OwnedRequest, PostgresBackend};
use fairlock_tests::locks::take_now;
use fairlock_tests::log_lines::{keep_log_lines, log_lines};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, by_threads};
use log::LevelFilter;

use crate::support::{SOON, granted, ms, request, server, through, until_nothing_left};

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
        let lock = ours.rw_lock(&format!("read {name}")).unwrap().owned_by(&ours.new_owner()).unwrap();
        lock.read().unwrap()
    });
    let lines = log_lines("").len();
    proxy.set_all(&Traffic::ALL, Rule::Delay(WAY));
    let (until, mut seen) = (Instant::now() + lease + lease / 4, 0);
    while Instant::now() < until {
        for name in &names {
            let state = theirs.fair_lock(name).unwrap().inspect().unwrap();
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

/// From an unlock to the next owner in another process: load, and write with its message. So it is two trips, also where the holder
/// took a free lock and nobody has told it that others wait, but for the first time.
#[test]
fn a_hand_over_far_from_the_server_is_two_trips() {
    const TRIP: Duration = ms(80);
    let _alone = Alone::here();
    let proxy = Proxy::start(server().port());
    let [ours, theirs] =
        [(); 2].map(|()| Client::new(PostgresBackend::connect(&through(server(), &proxy)).unwrap()).unwrap());
    proxy.set_all(&Traffic::ALL, Rule::Delay(TRIP / 2));
    for is_chain in [false, true] {
        let name = format!("handed {is_chain}");
        let hand_over = |guard: OwnedGuard, waiting: OwnedRequest| {
            let waiting = thread::spawn(move || (granted(waiting, SOON), Instant::now()));
            let began = Instant::now();
            let unlocked = thread::spawn(move || guard.unlock().unwrap());
            let (next, granted) = waiting.join().unwrap();
            unlocked.join().unwrap();
            (next, granted - began)
        };
        let mut took = Vec::new();
        let mut guard = take_now(&ours, &name);
        for turn in 0..12 {
            let waiting = request(if turn % 2 == 0 { &theirs } else { &ours }, &name);
            let (next, time) = hand_over(guard, waiting);
            took.push(time);
            guard = next;
            if !is_chain && turn % 2 == 0 {
                guard.unlock().unwrap();
                guard = take_now(&theirs, &name); // which nobody waits for
            }
        }
        guard.unlock().unwrap();
        took.remove(0);
        took.sort();
        let trips: Vec<_> = took.iter().map(|time| time.as_secs_f64() / TRIP.as_secs_f64()).collect();
        println!("trips: {trips:.2?}");
        // A release that joins a step under way is quicker than two trips, and never quicker than the way to the server and back. On a
        // busy machine most of the others are slower.
        let are_two = |trips: &f64| (1.5..=2.5).contains(trips);
        assert!(trips[0] >= 1.0 && trips.iter().any(are_two), "{trips:.2?}");
    }
    proxy.set_all(&Traffic::ALL, Rule::Pass);
    until_nothing_left(server());
}
