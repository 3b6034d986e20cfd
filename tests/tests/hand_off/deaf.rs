//! Wake-ups that don't arrive: everything works by heartbeats, within their period.

use std::time::{Duration, Instant};

use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::{Alone, Proxy, RedisServer, assert_no_residue};

use crate::support::{SLACK, SOON, client, granted, request, take};

const TTL: Duration = Duration::from_millis(900);

/// Each of the waiters of four clients gets the lock a third of a place's life after the release before at the latest.
/// Returns the tokens, in the order in which the waiters had asked.
fn four_turns(proxy: &Proxy, name: &str) -> Vec<u64> {
    let clients: Vec<_> = (0..4).map(|_| client(&proxy.url(), TTL)).collect();
    let guard = take(&clients[0].fair_lock(name).unwrap());
    let requests: Vec<_> = clients.iter().map(|client| request(client, name)).collect();
    let (say, said) = std::sync::mpsc::channel();
    let mut tokens = vec![0; 4];
    std::thread::scope(|scope| {
        for (number, request) in requests.into_iter().enumerate() {
            let say = say.clone();
            scope.spawn(move || say.send((number, granted(request, SOON))).unwrap());
        }
        let mut released = Instant::now();
        guard.unlock().unwrap();
        for _ in 0..4 {
            let (number, guard) = said.recv_timeout(SOON).unwrap();
            assert!(released.elapsed() <= TTL / 3 + SLACK, "{:?}", released.elapsed());
            tokens[number] = guard.token().get();
            released = Instant::now();
            guard.unlock().unwrap();
        }
    });
    assert!(clients.iter().all(|client| client.stats().granted_by_wake_up == 0));
    tokens
}

#[test]
fn messages_that_are_lost_on_the_way_cost_a_third_of_a_place_and_no_order() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    proxy.set(Traffic::WakeUps, Rule::Swallow);
    let tokens = four_turns(&proxy, "lost");
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_no_residue(&server, &[]);
}

#[test]
fn subscriptions_that_get_no_word_through_cost_a_third_of_a_place() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    for traffic in [Traffic::WakeUps, Traffic::Confirmations] {
        // A client needs its subscription confirmed to begin with.
        proxy.set(traffic, Rule::Pass);
    }
    let ours = client(&proxy.url(), TTL);
    let guard = take(&ours.fair_lock("silent").unwrap());
    let waiting = request(&ours, "silent");
    for traffic in [Traffic::WakeUps, Traffic::Confirmations] {
        proxy.set(traffic, Rule::Swallow);
    }
    for round in 0..3 {
        // Between the rounds the subscription is given up and made again, in vain.
        proxy.cut_subscriptions();
        if round == 2 {
            break;
        }
        std::thread::sleep(TTL); // places live on without a word from the server's side
    }
    let released = Instant::now();
    guard.unlock().unwrap();
    let guard = granted(waiting, SOON);
    assert!(released.elapsed() <= TTL / 3 + SLACK, "{:?}", released.elapsed());
    guard.unlock().unwrap();
    assert_eq!(ours.stats().places_lost, 0);
    drop(ours);
    assert_no_residue(&server, &[]);
}
