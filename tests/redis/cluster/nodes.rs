//! Primaries that die, freeze and come back; the node with the subscription; and names that a cluster can't keep.

use std::time::{Duration, Instant};

use fairlock::settings::{Discipline, RedisBuilder};
use fairlock::{Client, Error, RedisBackend};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::waiter::in_turn;
use fairlock_tests::{Alone, Cluster, RedisServer, Waiter, eventually};

use super::support::{client, ear_of, listens};

/// The promised time after the replica's promotion.
const AFTER_FAIL_OVER: Duration = Duration::from_secs(2);

/// A holder and two waiters while the primary of their slot goes away. The hold survives, and the waiters get the
/// lock in order.
fn survives(away: impl FnOnce(&RedisServer)) -> Cluster {
    let cluster = Cluster::start(Replicas::One);
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[3]);
    let name = cluster.name_at(old, "lock:");
    let guard = client(&cluster).fair_lock(&name).unwrap().lock().unwrap();
    let waiters = [Waiter::start(client(&cluster), &name), Waiter::start(client(&cluster), &name)];
    eventually("the replica has the lock's keys", || {
        new.query::<i64>(&["DBSIZE"]) == old.query::<i64>(&["DBSIZE"])
    });
    away(old);
    eventually("the replica takes over", || {
        cluster.try_owner_of(&name).is_some_and(|owner| owner.port() == new.port())
    });
    let taken_over = Instant::now();
    assert!(!guard.is_lost());
    let took = in_turn(guard, waiters) - taken_over;
    assert!(took < AFTER_FAIL_OVER, "{took:?}");
    cluster
}

#[test]
fn a_killed_primary_is_replaced_by_its_replica() {
    let _alone = Alone::here();
    survives(RedisServer::kill);
}

/// A frozen primary is replaced by its replica, and not trusted afterwards.
#[test]
fn a_frozen_primary_is_replaced_and_not_trusted_later() {
    let _alone = Alone::here();
    let cluster = survives(RedisServer::stop);
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[3]);
    let other = client(&cluster);
    let name = cluster.name_at(new, "lock:");
    let guard = client(&cluster).fair_lock(&name).unwrap().lock().unwrap();
    old.cont();
    let lock = other.fair_lock(&name).unwrap();
    eventually("the old primary is a replica", || {
        assert!(lock.try_lock().unwrap().granted().is_none(), "the old primary was trusted");
        old.query::<String>(&["INFO", "replication"]).contains("role:slave")
    });
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
}

#[test]
fn the_locks_of_the_other_nodes_are_renewed_while_one_is_frozen() {
    let _alone = Alone::here();
    let cluster = Cluster::start_with(Replicas::None, |node| node.arg("cluster-require-full-coverage", "no"));
    let frozen = &cluster.nodes[2];
    // A round of renewals takes as long as the slowest node, to connect or to answer. Two rounds fit into a lease.
    let short = Duration::from_millis(700);
    let backend = cluster.builder().connect_timeout(short).response_timeout(short).connect().unwrap();
    let client = Client::builder(backend).lease(Duration::from_millis(3500)).build().unwrap();
    let names = [
        cluster.name_at(&cluster.nodes[0], "a"),
        cluster.name_at(&cluster.nodes[1], "b"),
        cluster.name_at(frozen, "c"),
    ];
    let guards = names.each_ref().map(|name| client.fair_lock(name).unwrap().lock().unwrap());
    frozen.stop();
    eventually("the hold on the frozen node is lost", || guards[2].is_lost());
    // And some more rounds.
    let until = Instant::now() + Duration::from_secs(5);
    eventually("time has passed", || Instant::now() >= until);
    assert!(!guards[0].is_lost() && !guards[1].is_lost(), "one node's renewals waited for the frozen one");
    frozen.cont();
}

#[test]
fn wake_ups_go_on_when_the_node_that_carries_them_dies() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::One);
    let waiting = client(&cluster);
    let ear = ear_of(&cluster, &waiting);
    // The lock is on another node, and so is the replica of the dead node's slots.
    let home = cluster.nodes[..3].iter().find(|node| node.port() != ear.port()).unwrap();
    let name = cluster.name_at(home, "lock:");
    let guard = client(&cluster).fair_lock(&name).unwrap().lock().unwrap();
    let waiter = Waiter::start(waiting, &name);
    ear.kill();
    let others = || cluster.nodes.iter().filter(|node| node.is_running());
    eventually("the client listens at another node", || others().any(|node| listens(node, &waiter.client)));
    // With full coverage required, the whole cluster is down until a replica is promoted.
    let released = Instant::now();
    guard.unlock().unwrap();
    let unlocked = Instant::now();
    let (got, _) = waiter.has_it();
    assert!(got < unlocked + Duration::from_secs(1), "{:?} after {:?}", got - released, unlocked - released);
    waiter.leaves();
}

/// One answering node is enough, and a node outside a cluster is detected.
#[test]
fn one_answering_node_is_enough_and_a_lone_server_is_found() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let alone = RedisServer::start();
    let urls = cluster.urls();
    assert!(RedisBackend::connect_cluster(&[&urls[0]]).is_ok());
    let one = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[1].port());
    assert!(RedisBackend::connect(&one).is_ok());
    let error = RedisBackend::connect_cluster(&[&alone.url()]).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }));
    // In the other case the first call finds out.
    let single = Client::new(RedisBackend::connect(&urls[0]).unwrap()).unwrap();
    let name = cluster.name_at(&cluster.nodes[1], "lock:");
    let error = single.fair_lock(&name).unwrap().try_lock().unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    alone.stop();
    let asked = Instant::now();
    let mixed = [alone.url(), urls[2].clone()];
    let mixed: Vec<&str> = mixed.iter().map(String::as_str).collect();
    assert!(RedisBackend::connect_cluster(&mixed).is_ok(), "a frozen node among them delays nothing");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    alone.cont();
}

#[test]
fn one_login_serves_all_nodes_and_needs_few_rights() {
    let _alone = Alone::here();
    let user = "worker on >canary@/word ~* &fairlock:* -@all +ping +evalsha +script|load +publish +subscribe +unsubscribe \
        +time +exists +del +pexpire +pttl +hget +hmget +hset +hdel +hlen +zadd +zscore +zrem +zrange +zcard +zrank \
        +zrangebyscore +cluster|slots +asking";
    let cluster = Cluster::start_with(Replicas::None, |node| node.arg("user", user));
    let url = format!("redis://worker:canary%40%2Fword@127.0.0.1:{}", cluster.nodes[1].port());
    let client = || {
        let builder = RedisBuilder::cluster(&[&url]).discipline(Discipline::HandOff);
        Client::new(builder.connect().unwrap()).unwrap()
    };
    for node in &cluster.nodes {
        let name = cluster.name_at(node, "lock:");
        let guard = client().fair_lock(&name).unwrap().lock().unwrap();
        let request = client().fair_lock(&name).unwrap().request().unwrap();
        guard.unlock().unwrap();
        request.wait().unwrap().unlock().unwrap();
    }
    for node in &cluster.nodes {
        node.query::<()>(&["ACL", "SETUSER", "worker", "-cluster|slots"]);
    }
    let error = RedisBackend::connect_cluster(&[&url]).unwrap_err();
    assert!(!error.to_string().contains("word"), "{error}");
    assert!(matches!(error, Error::Denied { .. }));
}

#[test]
fn no_call_hangs_when_all_nodes_are_frozen_or_gone() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let client = Client::builder(cluster.builder().connect().unwrap()).outage_limit(Duration::from_secs(2));
    let client = client.build().unwrap();
    let (lock, other) = (client.fair_lock("lock:a").unwrap(), client.new_owner());
    let url = format!("redis+cluster://{}", cluster.nodes[0].address());
    let guard = lock.lock().unwrap();
    for gone in [RedisServer::stop, RedisServer::kill] {
        cluster.nodes.iter().for_each(gone);
        let calls: [&dyn Fn() -> bool; 3] =
            [&|| lock.owned_by(&other).unwrap().lock().is_err(), &|| lock.is_locked().is_err(), &|| {
                RedisBackend::connect(&url).is_err()
            }];
        for call in calls {
            let asked = Instant::now();
            assert!(call());
            assert!(asked.elapsed() < Duration::from_secs(12), "{:?}", asked.elapsed());
        }
    }
    assert!(guard.unlock().is_err());
}
