//! Absent waiters: dead, stopped, deaf, or silent because the server stood still.

use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, Worker, assert_no_residue, eventually, signals};

use crate::support::{
    LONG, PROGRAM, SLACK, SOON, client, granted, join, line, listeners, request, take, until_in_line,
};

/// A process in which `threads` threads wait in line for the lock.
fn crowd(server: &RedisServer, name: &str, threads: &str, place_ms: &str) -> Worker {
    let mut crowd = Worker::start(PROGRAM, &["wait", "hand_off", &server.url(), name, threads, place_ms]);
    crowd.go();
    crowd.expect("waiting", SOON);
    crowd
}

#[test]
fn two_hundred_waiters_with_dead_connections_delay_no_other() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = client(&server.url(), LONG);
    let guard = take(&ours.fair_lock("crowd").unwrap());
    let mut dead = crowd(&server, "crowd", "200", "60000");
    let live = request(&ours, "crowd");
    assert_eq!(live.rank(), Some(200));
    dead.kill();
    eventually(SOON, "the server sees that the waiters are gone", || listeners(&server) == 1);
    let released = Instant::now();
    guard.unlock().unwrap();
    granted(live, SOON).unlock().unwrap();
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
    assert_eq!(ours.stats().granted_by_polling, 0);
    // Their places expire.
    assert_no_residue(&server, &["fairlock_line:{crowd}", "fairlock_record:{crowd}"]);
}

/// Puts places of a dead client at the head of the line, more than one script examines.
fn dead_places(server: &RedisServer, name: &str) {
    let flood = "local now = tonumber(redis.call('TIME')[1]) * 1000 \
        for at = 1, 3000 do \
          local member = string.format('00000000-0000-4000-8000-000000000000:%d:%016x', at, at) \
          redis.call('ZADD', KEYS[1], at, member) \
          redis.call('HSET', KEYS[2], member, string.format('%.0f 30000 1 dead', now + 60000)) \
        end \
        for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, 120000) end";
    let keys = [format!("fairlock_line:{{{name}}}"), format!("fairlock_record:{{{name}}}")];
    server.query::<()>(&["EVAL", flood, "2", &keys[0], &keys[1]]);
}

/// No heartbeat comes in this time: the releasing client repeats its call until the lock is granted or the line is
/// empty.
#[test]
fn thousands_of_dead_connections_delay_no_live_waiter_however_the_lock_becomes_free() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ours = client(&server.url(), LONG);
    let others = client(&server.url(), LONG);
    for name in ["released", "forced", "withdrawn", "asked", "tried"] {
        let lock = ours.fair_lock(name).unwrap();
        let guard = take(&lock);
        dead_places(&server, name);
        let lost = || server.query::<()>(&["DEL", name]); // without a message
        let live = match name {
            "released" => {
                let live = request(&others, name);
                guard.unlock().unwrap();
                live
            }
            "forced" => {
                let live = request(&others, name);
                assert!(lock.force_unlock().unwrap());
                live
            }
            "withdrawn" => {
                let (leaves, live) = (request(&ours, name), request(&others, name));
                lost();
                drop(leaves);
                live
            }
            "asked" => {
                lost();
                request(&others, name)
            }
            _ => {
                lost();
                let tried = others.fair_lock(name).unwrap().try_lock().unwrap();
                tried.guard().unwrap_or_else(|| panic!("no live waiter is ahead")).unlock().unwrap();
                continue;
            }
        };
        granted(live, SOON).unlock().unwrap();
    }
    drop((ours, others));
    assert_no_residue(&server, &["fairlock_line:*", "fairlock_record:*"]);
}

#[test]
fn two_hundred_stopped_waiters_delay_the_next_by_one_place_in_total() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ttl = Duration::from_millis(1500);
    let ours = client(&server.url(), ttl);
    let guard = take(&ours.fair_lock("still").unwrap());
    let still = crowd(&server, "still", "200", "1500");
    let live = request(&ours, "still");
    assert_eq!(live.rank(), Some(200));
    // Their connections stay: for the server, they listen.
    signals::stop(still.child());
    assert_eq!(listeners(&server), 2);
    let released = Instant::now();
    guard.unlock().unwrap();
    granted(live, SOON).unlock().unwrap();
    let waited = released.elapsed();
    assert!(waited <= ttl + SLACK, "{waited:?}");
    drop(still);
    assert_no_residue(&server, &["fairlock_line:{still}", "fairlock_record:{still}"]);
}

#[test]
fn an_unreachable_waiter_is_passed_over_and_keeps_its_place() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (ours, deaf) = (client(&server.url(), LONG), client(&proxy.url(), LONG));
    let guard = take(&ours.fair_lock("deaf").unwrap());
    let first = request(&deaf, "deaf");
    let (second, third) = (request(&ours, "deaf"), request(&ours, "deaf"));
    let places = line(&server, "deaf");

    proxy.set(Traffic::Subscriptions, Rule::Swallow);
    proxy.cut_subscriptions();
    eventually(SOON, "the first waiter's client is unsubscribed", || listeners(&server) == 1);
    guard.unlock().unwrap();
    // No heartbeat comes in that time: the releasing script passes over the first waiter.
    let second = granted(second, SOON);
    assert_eq!(line(&server, "deaf"), [places[2].clone(), places[0].clone()]);

    proxy.set(Traffic::Subscriptions, Rule::Pass);
    eventually(SOON, "the waiter is back at its place", || {
        line(&server, "deaf") == [places[0].clone(), places[2].clone()]
    });
    second.unlock().unwrap();
    let first = granted(first, SOON);
    assert!(third.decided().try_recv().is_err());
    first.unlock().unwrap();
    granted(third, SOON).unlock().unwrap();
    assert_eq!((deaf.stats().places_lost, ours.stats().granted_by_polling), (0, 0));
    drop((ours, deaf));
    assert_no_residue(&server, &[]);
}

/// While the server stands still, the waiters' heartbeats fail and their subscriptions are given up. The release is
/// the first command afterwards, and the commands of the first waiter's client are the last.
#[test]
fn the_order_survives_a_server_stopped_for_longer_than_a_place_lives() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let ttl = Duration::from_secs(6);
    let patient = RedisBackend::builder(&server.url()).discipline(Discipline::HandOff);
    let patient = patient.response_timeout(LONG).connect().unwrap();
    let holder = Client::builder(patient).lease(LONG * 2).place_ttl(LONG).build().unwrap();
    let guard = holder.fair_lock("frozen").unwrap().owned_by(&holder.new_owner()).unwrap().lock().unwrap();
    let slow = Proxy::start(server.port());
    let urls = [slow.url(), server.url(), server.url(), server.url()];
    let clients = urls.map(|url| client(&url, ttl));
    let requests: Vec<_> = (0..12).map(|number| request(&clients[number % 4], "frozen")).collect();
    until_in_line(&server, "frozen", 12);
    slow.set(Traffic::Commands, Rule::Delay(Duration::from_millis(100)));
    thread::scope(|scope| {
        server.stop();
        let release = scope.spawn(|| guard.unlock());
        thread::sleep(Duration::from_secs(7)); // the silence under test
        server.cont();
        join(release).unwrap();
    });
    let mut before = 0;
    for (number, request) in requests.into_iter().enumerate() {
        let guard = granted(request, SOON);
        // If a later waiter had been granted the lock earlier, its token would be greater.
        assert!(guard.token().get() > before, "waiter {number} was passed");
        before = guard.token().get();
        guard.unlock().unwrap();
    }
    drop((clients, holder));
    assert_no_residue(&server, &[]);
}

/// The first heartbeat after the silence is for long-lived places: half of their time is more than the whole time of
/// the first waiter's place.
#[test]
fn the_order_survives_a_stopped_server_with_places_of_different_lives() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    // Patient, since a client that gives up its subscription counts as absent.
    let patient = |url: &str, place_ttl| {
        let backend = RedisBackend::builder(url).discipline(Discipline::HandOff).response_timeout(LONG);
        Client::builder(backend.connect().unwrap()).lease(LONG * 2).place_ttl(place_ttl).build().unwrap()
    };
    let holder = patient(&server.url(), LONG);
    let mut guard = holder.fair_lock("mixed").unwrap().owned_by(&holder.new_owner()).unwrap().lock().unwrap();
    let slow = Proxy::start(server.port());
    let (short, long) = (patient(&slow.url(), Duration::from_secs(3)), patient(&server.url(), LONG));
    let requests = [request(&short, "mixed"), request(&long, "mixed")];
    slow.set(Traffic::Commands, Rule::Delay(Duration::from_millis(50)));
    thread::scope(|scope| {
        server.stop();
        let bump = scope.spawn(|| guard.bump());
        thread::sleep(Duration::from_secs(5)); // the silence under test
        server.cont();
        let mut before = 0;
        for (number, request) in requests.into_iter().enumerate() {
            let guard = granted(request, SOON);
            assert!(guard.token().get() > before, "waiter {number} was passed");
            before = guard.token().get();
            guard.unlock().unwrap();
        }
        join(bump).unwrap();
    });
    guard.unlock().unwrap();
    drop((short, long, holder));
    assert_no_residue(&server, &[]);
}
