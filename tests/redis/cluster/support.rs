//! Clients of a cluster.

use std::time::Duration;

use fairlock::{Client, Discipline, RedisBackend, RedisBuilder};
use fairlock_tests::{Cluster, RedisServer};

/// Far longer than anything here takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) fn builder(cluster: &Cluster) -> RedisBuilder {
    let urls = cluster.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    RedisBuilder::cluster(&urls).discipline(Discipline::HandOff)
}

pub(crate) fn backend(cluster: &Cluster) -> RedisBackend {
    builder(cluster).connect().unwrap()
}

pub(crate) fn client(cluster: &Cluster) -> Client {
    Client::builder(backend(cluster)).outage_limit(BOUND).build().unwrap()
}

/// Whether this client is subscribed at the node.
pub(crate) fn listens(node: &RedisServer, client: &Client) -> bool {
    let (_, count): (String, i64) = node.query(&["PUBSUB", "NUMSUB", &format!("fairlock:{}", client.id())]);
    count > 0
}

/// The node at which this client listens.
pub(crate) fn ear_of<'a>(cluster: &'a Cluster, client: &Client) -> &'a RedisServer {
    cluster.nodes.iter().find(|node| listens(node, client)).expect("the client listens at a node")
}
