//! Sentinels, their servers and a cluster that speak only TLS, also with each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::sentinel::MASTER;
use fairlock_tests::tls::Certificates;
use fairlock_tests::{Cluster, RedisServer, Sentinels, WorkDir};

/// Set in the second process, which trusts the certificates. This process can't change its own environment without
/// unsafe code.
const URL: &str = "FAIRLOCK_TEST_TLS_SERVERS";

/// The body of the second process: takes turns on some locks.
fn is_the_second_process() -> bool {
    let Ok(url) = std::env::var(URL) else { return false };
    let client = || {
        let backend = RedisBackend::builder(&url).discipline(Discipline::HandOff).connect().unwrap();
        Client::new(backend).unwrap()
    };
    let (one, other) = (client(), client());
    for number in 0..10 {
        let name = format!("lock:{number}");
        let guard = one.fair_lock(&name).unwrap().lock().unwrap();
        let request = other.fair_lock(&name).unwrap().request().unwrap();
        guard.unlock().unwrap();
        request.wait().unwrap().unlock().unwrap();
    }
    println!("ten locks over TLS: done");
    true
}

/// Runs `test` again in a process that trusts the authority. This process does not, and is refused.
#[track_caller]
fn works(test: &str, url: &str, certificates: &Certificates) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(URL, url)
        .env("SSL_CERT_FILE", &certificates.ca)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("ten locks over TLS: done"), "{child:?}");
    let error = RedisBackend::connect(url).unwrap_err();
    assert!(error.to_string().contains("certificate is not trusted"), "{error}");
}

fn hosts(servers: &[RedisServer]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect::<Vec<_>>().join(",")
}

#[test]
fn sentinels_and_their_servers_are_reached_over_tls() {
    if is_the_second_process() {
        return;
    }
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let sentinels = Sentinels::builder().tls(&certificates).steady().start();
    works(
        "sentinels_and_their_servers_are_reached_over_tls",
        &format!("rediss+sentinel://{}/{MASTER}", hosts(&sentinels.sentinels)),
        &certificates,
    );
    assert_eq!(sentinels.servers[0].query::<i64>(&["DBSIZE"]), 10, "the locks are on this server");
}

#[test]
fn the_nodes_of_a_cluster_are_reached_over_tls() {
    if is_the_second_process() {
        return;
    }
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let cluster = Cluster::start_with(Replicas::None, |node| node.tls_with(&certificates));
    works(
        "the_nodes_of_a_cluster_are_reached_over_tls",
        &format!("rediss+cluster://{}", hosts(&cluster.nodes[..1])),
        &certificates,
    );
    let tokens: i64 = cluster.nodes.iter().map(|node| node.query::<i64>(&["DBSIZE"])).sum();
    assert_eq!(tokens, 10);
}
