//! The errors that a user sees from a server that refuses, and what still works there.

use std::time::Duration;

use fairlock::{Client, Error, Lock};
use fairlock_tests::{Alone, assert_no_residue};

use super::refusals::{self, Refusal};
use super::world::{NAME, Rules, World};

const BOUND: Duration = Duration::from_secs(20);

fn client(url: &str, rules: Rules) -> (Client, Lock) {
    let builder = Client::builder(rules.connect(url)).outage_limit(Duration::from_millis(300));
    let client = builder.lease(Duration::from_secs(60)).build().unwrap();
    let lock = match rules {
        Rules::Plain => client.plain_lock(NAME),
        _ => client.fair_lock(NAME),
    };
    (client, lock.unwrap())
}

#[test]
fn a_lock_that_the_server_refuses_is_an_error_with_its_name_and_the_cause() {
    let _alone = Alone::here();
    let server = refusals::server();
    for rules in [Rules::HandOff, Rules::Redisson, Rules::Plain] {
        let world = World::new(&server, rules);
        let (_client, lock) = client(&server.url(), rules);
        for (refusal, cause) in [
            (Refusal::Full, "the server is out of memory (OOM"),
            (Refusal::Replica, "the server is a replica, it takes no writes (READONLY"),
            (Refusal::CantSave, "the server can't save its data and refuses writes (MISCONF"),
        ] {
            refusal.begin(&world);
            let error = lock.lock().unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{rules:?}: {error:?}");
            let (text, at) = (error.to_string(), server.address());
            for part in ["`orders`", cause, &at] {
                assert!(text.contains(part), "{rules:?}: `{part}` is not in: {text}");
            }
            let keys = world.keys();
            assert!(!keys.contains_key(NAME), "{rules:?}, {refusal:?}: {keys:?}");
            refusal.end(&world);
            lock.try_lock_for(BOUND).unwrap().guard().expect("granted again").unlock().unwrap();
        }
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn on_a_full_server_holders_and_waiters_go_on_and_newcomers_are_refused() {
    let _alone = Alone::here();
    let server = refusals::server();
    for rules in [Rules::HandOff, Rules::Redisson] {
        let world = World::new(&server, rules);
        let (holder, lock) = client(&server.url(), rules);
        let (_waiter, its_lock) = client(&server.url(), rules);
        let guard = lock.lock().unwrap();
        let request = its_lock.request().unwrap();
        Refusal::Full.begin(&world);
        guard.renew().unwrap();
        let inner = lock.lock().unwrap();
        inner.unlock().unwrap();
        let refused = lock.owned_by(&holder.new_owner()).unwrap().lock().unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{rules:?}: {refused:?}");
        guard.unlock().unwrap();
        let mut request = request;
        let turn = request.wait_for(BOUND).unwrap().guard().expect("granted in time");
        turn.unlock().unwrap();
        Refusal::Full.end(&world);
        let last = lock.try_lock_for(BOUND).unwrap().guard().expect("granted in time");
        last.unlock().unwrap();
    }
    assert_no_residue(&server, &[]);
}
