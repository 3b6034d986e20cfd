//! Slots that move to another node while their locks are held and waited for.

use std::time::{Duration, Instant};

use fairlock::Client;
use fairlock_tests::cluster::Replicas;
use fairlock_tests::errors::assert_says;
use fairlock_tests::waiter::in_turn;
use fairlock_tests::{Alone, Cluster, Waiter, eventually};

use super::support::{BOUND, client};

/// Short, so that both are renewed during the move.
fn impatient(cluster: &Cluster) -> Client {
    let lease = Duration::from_millis(1500);
    let backend = cluster.builder().response_timeout(lease / 2).connect().unwrap();
    let builder = Client::builder(backend).outage_limit(BOUND);
    builder.lease(lease).place_ttl(Duration::from_millis(1500)).build().unwrap()
}

#[test]
fn a_lock_that_is_held_and_waited_for_moves_with_its_slot() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let name = cluster.name_at(from, "lock:");
    let slot = cluster.slot_of(&name);
    let guard = impatient(&cluster).fair_lock(&name).unwrap().lock().unwrap();
    let waiters = [Waiter::start(impatient(&cluster), &name), Waiter::start(impatient(&cluster), &name)];

    cluster.begin_move(slot, from, to);
    // One key after the other: for a while the lock's keys are on two nodes.
    let (mut moved, started) = (Vec::new(), Instant::now());
    loop {
        let keys = cluster.move_keys(slot, from, to, 1);
        if keys.is_empty() {
            break;
        }
        moved.extend(keys);
        // Renewals continue in this time, or get TRYAGAIN.
        let until = started + Duration::from_millis(400) * u32::try_from(moved.len()).unwrap();
        eventually("time has passed", || Instant::now() >= until);
        assert!(!guard.is_lost(), "after {moved:?}");
    }
    assert!(moved.contains(&name) && moved.len() >= 3, "{moved:?}");
    // All keys have moved, but not the slot: the node redirects with ASK. This lasts longer than the lease.
    let until = Instant::now() + Duration::from_secs(2);
    eventually("time has passed", || Instant::now() >= until);
    assert!(!guard.is_lost(), "the hold is renewed with ASKING");
    cluster.end_move(slot, to);

    in_turn(guard, waiters);
    let keys: Vec<String> = from.query(&["KEYS", "*"]);
    assert!(keys.is_empty(), "{keys:?}");
    cluster.assert_no_residue();
}

/// Redis refuses a script if some of its keys are elsewhere, or don't exist: those of a queue without waiters.
#[test]
fn a_lock_without_waiters_can_be_renewed_only_while_it_moves() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let name = cluster.name_at(from, "lock:");
    let slot = cluster.slot_of(&name);
    let [ours, theirs] = [client(&cluster), client(&cluster)];
    let guard = ours.fair_lock(&name).unwrap().lock().unwrap();
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to, 100);
    let newcomer = theirs.fair_lock(&name).unwrap();
    let is_moved = ["the lock is being moved between servers"];
    assert_says(&newcomer.try_lock().map(drop).unwrap_err(), &is_moved);
    guard.renew().unwrap();
    assert_says(&guard.unlock().unwrap_err(), &is_moved);
    cluster.end_move(slot, to);
    // The newcomer's first request is withdrawn meanwhile: a withdrawal that began during the move may fail after its end.
    let is_granted = || newcomer.try_lock().is_ok_and(|tried| tried.granted().is_some());
    eventually("the watchdog releases it", is_granted);
}

#[test]
fn a_newcomer_during_a_move_asks_the_node_that_has_the_lock() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let name = cluster.name_at(from, "lock:");
    let slot = cluster.slot_of(&name);
    let guard = client(&cluster).fair_lock(&name).unwrap().lock().unwrap();
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to, 100);
    // Every key of the lock is on the new node, which must be asked: on the old one the lock is free.
    let plain = client(&cluster).plain_lock(&name).unwrap();
    assert!(plain.try_lock().unwrap().granted().is_none());
    cluster.end_move(slot, to);
    assert!(plain.try_lock().unwrap().granted().is_none());
    let newcomer = client(&cluster).fair_lock(&name).unwrap();
    assert!(newcomer.try_lock().unwrap().granted().is_none());
    guard.unlock().unwrap();
    newcomer.try_lock().unwrap().granted().expect("free").unlock().unwrap();
    cluster.assert_no_residue();
}
