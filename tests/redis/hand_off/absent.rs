//! Absent waiters: dead, stopped, deaf, or silent because the server stood still.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, FencingToken, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::server_state::add_dead_places;
use fairlock_tests::{Worker, signals};

use crate::support::*;

/// A process in which two hundred threads wait in the queue for the lock.
fn crowd(server: &RedisServer, place_ms: &str) -> Worker {
    let mut crowd = Worker::start(PROGRAM, &["wait", "hand_off", &server.url(), "crowd", "200", place_ms]);
    crowd.go();
    crowd.expect("waiting", SOON);
    crowd
}

/// The lock is released while this is so of the crowd ahead. The live waiter has it in time.
#[track_caller]
fn delays(ttl: Duration, at_most: Duration, is_away: fn(&RedisServer, &mut Worker)) {
    // The places of the crowd expire.
    let server = CleanServer::start().allow(&["fairlock_queue:{crowd}", "fairlock_record:{crowd}"]);
    let ours = with_places(&server.url(), ttl);
    let guard = take(&ours, "crowd");
    let mut away = crowd(&server, &ttl.as_millis().to_string());
    let live = request(&ours, "crowd");
    assert_eq!(live.rank(), Some(200));
    is_away(&server, &mut away);
    let released = Instant::now();
    guard.unlock().unwrap();
    served(live);
    assert!(released.elapsed() < at_most, "{:?}", released.elapsed());
    assert!(ttl < LONG || ours.stats().granted_by_polling == 0);
}

#[test]
fn two_hundred_waiters_with_dead_connections_delay_no_other() {
    delays(LONG, Duration::from_secs(5), |server, dead| {
        dead.kill();
        eventually("the server sees that the waiters are gone", || listeners(server) == 1);
    });
}

/// Two hundred stopped waiters delay the next by one place in total.
#[test]
fn two_hundred_stopped_waiters_delay_by_one_place() {
    let ttl = Duration::from_millis(1500);
    delays(ttl, ttl + SLACK, |server, still| {
        // Their connections stay: for the server, they listen.
        signals::stop(still.child());
        assert_eq!(listeners(server), 2);
    });
}

/// Thousands of dead connections delay no live waiter, however the lock becomes free. No heartbeat comes in this time: the
/// releasing client repeats its call until the lock is granted or the queue is empty.
#[test]
fn thousands_of_dead_connections_delay_no_live_waiter() {
    let server = CleanServer::start().allow(&["fairlock_queue:*", "fairlock_record:*"]);
    let (ours, others) = (client(&server.url()), client(&server.url()));
    for name in ["released", "forced", "withdrawn", "asked", "tried"] {
        let guard = take(&ours, name);
        // More than one script examines.
        add_dead_places(&server, name, 1..=3000, LONG);
        let lost = || server.query::<()>(&["DEL", name]); // without a message
        match name {
            "released" => {
                let live = request(&others, name);
                guard.unlock().unwrap();
                served(live);
            }
            "forced" => {
                let live = request(&others, name);
                assert!(ours.fair_lock(name).unwrap().force_unlock().unwrap());
                served(live);
            }
            "withdrawn" => {
                let (leaves, live) = (request(&ours, name), request(&others, name));
                lost();
                drop(leaves);
                served(live);
            }
            "asked" => {
                lost();
                served(request(&others, name));
            }
            _ => {
                lost();
                let tried = others.fair_lock(name).unwrap().try_lock().unwrap();
                tried.guard().expect("no live waiter is ahead").unlock().unwrap();
            }
        }
    }
}

#[test]
fn an_unreachable_waiter_is_passed_over_and_keeps_its_place() {
    let server = CleanServer::start();
    let proxy = Proxy::start(server.port());
    let (ours, deaf) = (client(&server.url()), client(&proxy.url()));
    let guard = take(&ours, "deaf");
    let [first, second, third] = [&deaf, &ours, &ours].map(|client| request(client, "deaf"));
    let places = queue(&server, "deaf");

    proxy.set(Traffic::Subscriptions, Rule::Swallow);
    proxy.cut_subscriptions();
    eventually("the first waiter's client is unsubscribed", || listeners(&server) == 1);
    guard.unlock().unwrap();
    // No heartbeat comes in that time: the releasing script passes over the first waiter. It has not yet repeated its ticket, so it
    // may not know it, and stays.
    let second = granted(second, SOON);
    let others = [&places[0], &places[2]].map(String::clone);
    assert_eq!(queue(&server, "deaf"), others);

    proxy.set(Traffic::Subscriptions, Rule::Pass);
    eventually("the waiter's client is back", || listeners(&server) == 2);
    assert_eq!(queue(&server, "deaf"), others);
    second.unlock().unwrap();
    let first = granted(first, SOON);
    assert!(third.decided().try_recv().is_err());
    first.unlock().unwrap();
    served(third);
    assert_eq!((deaf.stats().places_lost, ours.stats().granted_by_polling), (0, 0));
}

/// It waits for an answer as long as the server stands still: a client that gives up its subscription counts as absent.
fn patient(url: &str, place_ttl: Duration) -> Client {
    let backend = RedisBackend::builder(url).discipline(Discipline::HandOff).response_timeout(LONG);
    Client::builder(backend.connect().unwrap()).lease(LONG * 2).place_ttl(place_ttl).build().unwrap()
}

/// The order survives a server that was stopped for longer than a place lives. While the server stands still, the waiters'
/// heartbeats fail and their subscriptions are given up. The release is the first command afterwards, and the commands of the
/// first waiter's client are the last.
#[test]
fn the_order_survives_a_stop_longer_than_a_place() {
    let server = CleanServer::start();
    let holder = patient(&server.url(), LONG);
    let guard = take(&holder, "frozen");
    let slow = Proxy::start(server.port());
    let urls = [slow.url(), server.url(), server.url(), server.url()];
    let clients = urls.map(|url| with_places(&url, Duration::from_secs(6)));
    let requests: Vec<_> = (0..12).map(|number| request(&clients[number % 4], "frozen")).collect();
    until_in_queue(&server, "frozen", 12);
    slow.set(Traffic::Commands, Rule::Delay(Duration::from_millis(100)));
    thread::scope(|scope| {
        server.stop();
        let release = scope.spawn(|| guard.unlock());
        thread::sleep(Duration::from_secs(7)); // the silence under test
        server.cont();
        join(release).unwrap();
    });
    in_turn(requests, FencingToken::new(0));
}

/// The order survives a stopped server with places of different lives. The first heartbeat after the silence is for long-lived
/// places: half of their time is more than the whole time of the first waiter's place.
#[test]
fn the_order_survives_a_stop_with_unequal_places() {
    let server = CleanServer::start();
    let holder = patient(&server.url(), LONG);
    let guard = take(&holder, "mixed");
    let slow = Proxy::start(server.port());
    let (short, long) = (patient(&slow.url(), Duration::from_secs(3)), patient(&server.url(), LONG));
    let requests = [request(&short, "mixed"), request(&long, "mixed")];
    slow.set(Traffic::Commands, Rule::Delay(Duration::from_millis(50)));
    thread::scope(|scope| {
        server.stop();
        let release = scope.spawn(|| guard.unlock());
        thread::sleep(Duration::from_secs(5)); // the silence under test
        server.cont();
        in_turn(requests, FencingToken::new(0));
        join(release).unwrap();
    });
}
