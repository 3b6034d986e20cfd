//! Mixed disciplines on one lock: they exclude each other, and each names the right holder.

use std::time::Duration;

use fairlock::{Client, Lock};
use fairlock_tests::{Alone, RedisServer, assert_no_residue, eventually};

use super::world::{NAME, Rules};

const BOUND: Duration = Duration::from_secs(20);
const ALL: [Rules; 3] = [Rules::HandOff, Rules::Redisson, Rules::Plain];

fn client(server: &RedisServer, rules: Rules) -> (Client, Lock) {
    let client =
        Client::builder(rules.connect(&server.url())).lease(Duration::from_secs(60)).build().unwrap();
    let lock = match rules {
        Rules::Plain => client.plain_lock(NAME),
        _ => client.fair_lock(NAME),
    };
    (client, lock.unwrap())
}

#[test]
fn a_holder_of_any_discipline_excludes_all_others_and_is_shown_to_them() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let mut last = None;
    for holds in ALL {
        let clients: Vec<_> = ALL.iter().map(|rules| client(&server, *rules)).collect();
        let (holder, lock) = client(&server, holds);
        let owner = holder.new_owner();
        let guard = lock.owned_by(&owner).unwrap().lock().unwrap();
        assert!(last < Some(guard.token()), "{holds:?}: tokens grow across disciplines");
        last = Some(guard.token());
        for ((_, lock), asks) in clients.iter().zip(ALL) {
            assert!(lock.try_lock().unwrap().guard().is_none(), "{asks:?} where {holds:?} holds");
            let seen = lock.inspect().unwrap().holder().cloned().expect("a holder");
            assert_eq!(
                (seen.owner.as_str(), seen.hold_count),
                (owner.id().as_str(), 1),
                "{asks:?} {holds:?}"
            );
            assert_eq!(seen.token, Some(guard.token()), "{asks:?} where {holds:?} holds");
        }
        guard.unlock().unwrap();
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_waiter_of_another_discipline_does_not_cost_the_holder_its_lock() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    for holds in ALL {
        for waits in ALL {
            let ((_holder, lock), (_waiter, its_lock)) = (client(&server, holds), client(&server, waits));
            let guard = lock.lock().unwrap();
            let mut request = its_lock.request().unwrap();
            guard.renew().unwrap_or_else(|e| panic!("{holds:?}, {waits:?} waits: {e}"));
            guard.unlock().unwrap_or_else(|e| panic!("{holds:?}, {waits:?} waits: {e}"));
            let turn = request.wait_for(BOUND).unwrap();
            turn.guard().unwrap_or_else(|| panic!("{waits:?} after {holds:?}")).unlock().unwrap();
        }
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_forced_unlock_notifies_the_holder_of_another_discipline() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    for holds in ALL {
        for forces in ALL {
            let ((_holder, lock), (_other, its_lock)) = (client(&server, holds), client(&server, forces));
            let guard = lock.lock().unwrap();
            assert!(its_lock.force_unlock().unwrap(), "{forces:?} takes it from {holds:?}");
            eventually(BOUND, &format!("{holds:?} learns of {forces:?}"), || guard.is_lost());
            drop(guard);
        }
    }
    assert_no_residue(&server, &[]);
}
