//! Wake-ups that don't arrive: heartbeats replace them within their period.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_tests::proxy::{Rule, Traffic};
use fairlock_tests::server_state::listeners;

use super::support::*;

const TTL: Duration = Duration::from_millis(900);
/// How late a timed event may be, on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// A waiter of each client gets the lock within a third of a place's life after the previous release. Returns their
/// tokens, in the order of the requests.
fn a_turn_each(clients: &[Client], name: &str) -> Vec<u64> {
    let guard = take(&clients[0], name);
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

/// Messages are lost on the way. Or for the server the clients are subscribed, but nothing from it arrives, not even pings, and
/// new connections are no better. Or for the server no client is subscribed: one that has noticed says so and counts as present;
/// another one is passed over until its heartbeat.
#[test]
fn wake_ups_that_do_not_arrive_cost_a_third_of_a_place() {
    for (swallowed, rounds) in [
        (&[Traffic::WakeUps][..], 1),
        (&[Traffic::WakeUps, Traffic::Confirmations], 3),
        (&[Traffic::Subscriptions], 3),
    ] {
        println!("without {swallowed:?}");
        let server = CleanServer::start();
        let proxy = Proxy::start(server.port());
        let clients: Vec<_> = (0..4).map(|_| with_places(&proxy.url(), TTL)).collect();
        proxy.set_all(swallowed, Rule::Swallow);
        if swallowed.contains(&Traffic::Subscriptions) {
            proxy.cut_subscriptions();
        }
        for round in 0..rounds {
            let tokens = a_turn_each(&clients, &format!("lost-{round}"));
            // A message that is lost costs no order either.
            assert!(rounds > 1 || tokens.is_sorted(), "{tokens:?}");
        }
        let by_wake_up: u64 = clients.iter().map(|client| client.stats().granted_by_wake_up).sum();
        assert!(rounds > 1 || by_wake_up == 0, "{by_wake_up}");
    }
}

/// A client that may not listen any more gets its turns in order, beside others. The client loses the right to subscribe for
/// good: the server closes its subscription, and refuses each new one.
#[test]
fn a_client_without_the_right_to_listen_has_its_turns() {
    let server = CleanServer::start();
    server.query::<()>(&["ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "&*"]);
    let (deaf, ours) = (with_places(&server.url_as("mute", "x"), TTL), with_places(&server.url(), TTL));
    server.query::<()>(&["ACL", "SETUSER", "mute", "resetchannels"]);
    eventually("the client is unsubscribed", || listeners(&server) == 1);
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
        eventually("both others take turns", || others().iter().all(|turns| *turns > 0));
        let before = others();
        let lock = deaf.fair_lock("busy").unwrap();
        let a_turn = |_| {
            let asked = Instant::now();
            let turn = lock.try_lock_for(SOON).unwrap().granted();
            let waited = asked.elapsed();
            let guard = turn?;
            // So both come before its next turn.
            eventually("both others wait", || lock.admin().inspect().unwrap().queue_length == 2);
            guard.unlock().unwrap();
            Some(waited)
        };
        let turns: Vec<_> = (0..5).map(a_turn).collect();
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
}
