//! Wake-ups that don't arrive: heartbeats replace them within their period.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue, eventually};

use crate::support::{LONG, SLACK, SOON, client, granted, join, listeners, request, scripts_run, take};

const TTL: Duration = Duration::from_millis(900);

fn world() -> (RedisServer, Proxy, Vec<Client>) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let clients = (0..4).map(|_| client(&proxy.url(), TTL)).collect();
    (server, proxy, clients)
}

/// A waiter of each client gets the lock within a third of a place's life after the previous release. Returns their
/// tokens, in the order of the requests.
fn a_turn_each(clients: &[Client], name: &str) -> Vec<u64> {
    let guard = take(&clients[0].fair_lock(name).unwrap());
    let requests: Vec<_> = clients.iter().map(|client| request(client, name)).collect();
    let (say, said) = channel();
    let mut tokens = vec![0; clients.len()];
    thread::scope(|scope| {
        for (number, request) in requests.into_iter().enumerate() {
            let say = say.clone();
            scope.spawn(move || say.send((number, granted(request, SOON))).unwrap());
        }
        let mut released = Instant::now();
        guard.unlock().unwrap();
        for _ in clients {
            let (number, guard) = said.recv_timeout(SOON).unwrap();
            assert!(released.elapsed() <= TTL / 3 + SLACK, "{:?}", released.elapsed());
            tokens[number] = guard.token().get();
            released = Instant::now();
            guard.unlock().unwrap();
        }
    });
    assert!(clients.iter().all(|client| client.stats().places_lost == 0));
    tokens
}

#[test]
fn messages_that_are_lost_on_the_way_cost_a_third_of_a_place_and_no_order() {
    let _alone = Alone::here();
    let (server, proxy, clients) = world();
    proxy.set(Traffic::WakeUps, Rule::Swallow);
    let tokens = a_turn_each(&clients, "lost");
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert!(clients.iter().all(|client| client.stats().granted_by_wake_up == 0));
    drop(clients);
    assert_no_residue(&server, &[]);
}

/// For the server the clients are subscribed. But nothing from the server arrives, not even pings, and new
/// connections are no better.
#[test]
fn subscriptions_on_which_nothing_arrives_cost_a_third_of_a_place() {
    let _alone = Alone::here();
    let (server, proxy, clients) = world();
    proxy.set(Traffic::WakeUps, Rule::Swallow);
    proxy.set(Traffic::Confirmations, Rule::Swallow);
    for round in 0..3 {
        a_turn_each(&clients, &format!("silent-{round}"));
    }
    drop(clients);
    assert_no_residue(&server, &[]);
}

/// For the server no client is subscribed. A client that has noticed says so and counts as present; another one is passed
/// over until its heartbeat.
#[test]
fn subscriptions_that_never_reach_the_server_cost_a_third_of_a_place() {
    let _alone = Alone::here();
    let (server, proxy, clients) = world();
    proxy.set(Traffic::Subscriptions, Rule::Swallow);
    proxy.cut_subscriptions();
    for round in 0..3 {
        a_turn_each(&clients, &format!("deaf-{round}"));
    }
    drop(clients);
    assert_no_residue(&server, &[]);
}

/// A client loses the right to subscribe for good: the server closes its subscription, and refuses each new one.
#[test]
fn a_client_that_may_not_listen_any_more_gets_its_turns_in_order_beside_others() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    server.query::<()>(&["ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "&*"]);
    let url = format!("redis://mute:x@127.0.0.1:{}", server.port());
    let (deaf, ours) = (client(&url, TTL), client(&server.url(), TTL));
    server.query::<()>(&["ACL", "SETUSER", "mute", "resetchannels"]);
    eventually(SOON, "the client is unsubscribed", || listeners(&server) == 1);
    let done = AtomicBool::new(false);
    let turns_of_others = [AtomicU64::new(0), AtomicU64::new(0)];
    let others = || turns_of_others.each_ref().map(|turns| turns.load(Ordering::Relaxed));
    thread::scope(|scope| {
        for turns in &turns_of_others {
            let (ours, done) = (&ours, &done);
            scope.spawn(move || {
                let (lock, owner) = (ours.fair_lock("busy").unwrap(), ours.new_owner());
                let began = Instant::now();
                while !done.load(Ordering::Relaxed) && began.elapsed() < LONG {
                    let guard = lock.owned_by(&owner).unwrap().lock().unwrap();
                    turns.fetch_add(1, Ordering::Relaxed); // while it holds: the next turn of another comes after it
                    guard.unlock().unwrap();
                }
            });
        }
        eventually(SOON, "both others take turns", || others().iter().all(|turns| *turns > 0));
        let before = others();
        let lock = deaf.fair_lock("busy").unwrap();
        let turns: Vec<_> = (0..5)
            .map(|_| {
                let asked = Instant::now();
                let turn = lock.try_lock_for(SOON).unwrap().guard();
                let waited = asked.elapsed();
                let guard = turn?;
                // So both come before its next turn.
                eventually(SOON, "both others wait", || lock.inspect().unwrap().line_length == 2);
                guard.unlock().unwrap();
                Some(waited)
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        let after = others();
        // By its next heartbeat, a third of a place's life after its request, or by the second, if it asked before it knew.
        let in_time = |waited: &Option<Duration>| waited.is_some_and(|waited| waited <= 2 * TTL / 3 + SLACK);
        assert!(turns.iter().all(in_time), "{turns:?}");
        // Each of the deaf client's turns but the first comes behind the others that queued before it.
        assert!(
            before.iter().zip(after).all(|(before, after)| after - before >= 4),
            "{before:?} turns of the others before, {after:?} after"
        );
    });
    assert_eq!((deaf.stats().places_lost, ours.stats().places_lost), (0, 0));
    drop((deaf, ours));
    assert_no_residue(&server, &[]);
}

/// The plain lock beside it: its waiters subscribe when they wait, and a release before that wakes no waiter.
#[test]
fn a_plain_lock_released_while_its_waiter_subscribes_is_granted_at_once() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (holder, waiter) = (client(&server.url(), LONG), client(&proxy.url(), LONG));
    let guard = holder.plain_lock("gap").unwrap().try_lock().unwrap().guard().expect("the lock is free");
    proxy.set(Traffic::Subscriptions, Rule::Delay(Duration::from_millis(300)));
    thread::scope(|scope| {
        let lock = waiter.plain_lock("gap").unwrap();
        let asked = scripts_run(&server);
        let waiting = scope
            .spawn(move || lock.try_lock_for(SOON).unwrap().guard().map(|guard| guard.unlock().unwrap()));
        eventually(SOON, "the waiter has no answer", || scripts_run(&server) > asked);
        guard.unlock().unwrap();
        assert!(join(waiting).is_some(), "its heartbeats come later than {SOON:?}");
    });
    assert_no_residue(&server, &[]);
}
