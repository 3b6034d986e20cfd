//! Clients of a cluster, and somebody who waits.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fairlock::{Client, Discipline, FencingToken, RedisBackend, RedisBuilder};
use fairlock_tests::{Cluster, RedisServer, eventually};

/// Far more than anything here takes, on a machine that is busy.
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

/// Whether this client's ear is at the node.
pub(crate) fn listens(node: &RedisServer, client: &Client) -> bool {
    let (_, count): (String, i64) = node.query(&["PUBSUB", "NUMSUB", &format!("fairlock:{}", client.id())]);
    count > 0
}

/// The node at which this client listens.
pub(crate) fn ear_of<'a>(cluster: &'a Cluster, client: &Client) -> &'a RedisServer {
    cluster.nodes.iter().find(|node| listens(node, client)).expect("it listens somewhere")
}

/// Someone who waits in a thread of his own, says when he has the lock, and gives it back when he is told to.
pub(crate) struct Waiter {
    pub(crate) client: Client,
    got: Receiver<(Instant, FencingToken)>,
    go: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Waiter {
    /// Returns when he is in line.
    pub(crate) fn start(client: Client, name: &str) -> Waiter {
        let lock = client.fair_lock(name).unwrap();
        let before = lock.inspect().unwrap().line.len();
        let (tell, got) = channel();
        let (go, told) = channel();
        let waiting = lock.clone();
        let thread = thread::spawn(move || {
            let guard = waiting.lock().unwrap();
            tell.send((Instant::now(), guard.token())).unwrap();
            told.recv_timeout(BOUND).unwrap();
            guard.unlock().unwrap();
        });
        eventually(BOUND, "the waiter stands in line", || lock.inspect().unwrap().line.len() > before);
        Waiter { client, got, go, thread }
    }

    #[track_caller]
    pub(crate) fn has_it(&self) -> (Instant, FencingToken) {
        self.got.recv_timeout(BOUND).unwrap()
    }

    pub(crate) fn leaves(self) {
        self.go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}
