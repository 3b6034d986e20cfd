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

/// A holder of any discipline excludes all other disciplines, and is shown to them.
#[test]
fn a_holder_of_any_discipline_excludes_all_others() {
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
            assert!(lock.try_lock().unwrap().granted().is_none(), "{asks:?} where {holds:?} holds");
            let seen = lock.admin().inspect().unwrap().holder().cloned().expect("a holder");
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

/// A waiter of another discipline costs the holder nothing, and a forced unlock notifies the waiter.
#[test]
fn a_waiter_of_another_discipline_costs_a_holder_nothing() {
    let _alone = Alone::here();
    let server = RedisServer::start();
    for (holds, other) in ALL.into_iter().flat_map(|holds| ALL.map(|other| (holds, other))) {
        let ((_holder, lock), (_other, its_lock)) = (client(&server, holds), client(&server, other));
        let guard = lock.lock().unwrap();
        let mut request = its_lock.request().unwrap();
        guard.renew().unwrap_or_else(|e| panic!("{holds:?}, {other:?} waits: {e}"));
        guard.unlock().unwrap_or_else(|e| panic!("{holds:?}, {other:?} waits: {e}"));
        let turn = request.wait_for(BOUND).unwrap();
        turn.granted().unwrap_or_else(|| panic!("{other:?} after {holds:?}")).unlock().unwrap();
        let guard = lock.lock().unwrap();
        assert!(its_lock.admin().force_unlock().unwrap(), "{other:?} takes it from {holds:?}");
        eventually(&format!("{holds:?} learns of {other:?}"), || guard.is_lost());
    }
    assert_no_residue(&server, &[]);
}
