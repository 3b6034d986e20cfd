//! Tasks beside more than one server: a master that is replaced, and a node of a cluster that stands still.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlock::{Client, RedisBackend};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::sentinel::MASTER;
use fairlock_tests::{Alone, Cluster, Sentinels, eventually, wait_until_no_residue};

use crate::support::{Resource, current, is_free_soon, multi, take, turn};

/// How late a timed event may be, on a busy machine.
const SLACK: Duration = Duration::from_secs(3);
/// Longer than a fail-over.
const OUTAGE: Duration = Duration::from_secs(30);

#[test]
fn tasks_in_queue_are_served_by_the_new_master() {
    let _alone = Alone::here();
    let sentinels = Sentinels::start();
    let urls = sentinels.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let clients = [(), ()].map(|()| {
        let backend = RedisBackend::connect_sentinel(&urls, MASTER).unwrap();
        Client::builder(backend).outage_limit(OUTAGE).build().unwrap()
    });
    let [old, new] = &sentinels.servers[..] else { panic!("there are two") };
    let runtime = multi();
    let resource = Resource::new(1);
    let held = take(&clients[0].fair_lock("lock:a").unwrap().to_async());
    let tasks: Vec<_> = (0..50)
        .map(|nth| {
            let (lock, resource) = (clients[nth % 2].fair_lock("lock:a").unwrap(), Arc::clone(&resource));
            let lock = lock.to_async();
            runtime.spawn(async move { turn(&lock, &resource, 1, nth).await })
        })
        .collect();
    eventually("all wait", || clients.iter().map(|client| client.waiting().len()).sum::<usize>() == 50);
    sentinels.wait_until_replicated(old, new);
    old.kill();
    sentinels.wait_for_master(new);
    held.check().unwrap();
    runtime.block_on(held.unlock()).unwrap();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(resource.uses(), 50);
    clients.iter().for_each(|client| client.shutdown().unwrap());
    wait_until_no_residue(new);
}

fn in_cluster(cluster: &Cluster, response: Duration) -> Client {
    let urls = cluster.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let backend = fairlock::RedisBuilder::cluster(&urls).response_timeout(response).connect().unwrap();
    Client::builder(backend).outage_limit(OUTAGE).build().unwrap()
}

/// A node that stands still delays the tasks of the other nodes by little.
#[test]
fn a_stopped_node_delays_other_nodes_tasks_by_little() {
    let _alone = Alone::here();
    let cluster = Cluster::start(Replicas::None);
    let response = Duration::from_millis(500);
    let client = in_cluster(&cluster, response);
    let [still, others @ ..] = &cluster.nodes[..] else { panic!("there are three") };
    let there = client.fair_lock(&cluster.name_at(still, "lock:a")).unwrap().to_async();
    let elsewhere: Vec<_> = others
        .iter()
        .map(|node| client.fair_lock(&cluster.name_at(node, "lock:b")).unwrap().to_async())
        .collect();
    elsewhere.iter().chain([&there]).for_each(is_free_soon); // connected
    still.stop();
    let (runtime, resource) = (current(), Resource::new(1));
    runtime.block_on(async {
        let turn_there = |nth| {
            let (lock, resource) = (there.clone(), Arc::clone(&resource));
            tokio::spawn(async move { turn(&lock, &resource, 1, nth).await })
        };
        let stuck: Vec<_> = (0..10).map(turn_there).collect();
        crate::support::pause().await;
        for lock in &elsewhere {
            let began = Instant::now();
            lock.lock().await.unwrap().unlock().await.unwrap();
            let took = began.elapsed();
            assert!(took < 4 * response + SLACK, "{took:?}");
        }
        still.cont();
        for stuck in stuck {
            stuck.await.unwrap();
        }
    });
    client.shutdown().unwrap();
    cluster.assert_no_residue();
}
