//! Servers, sentinels and a cluster that speak only TLS, also with each other; and certificates that are not trusted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fairlock::{Client, Error, RedisBackend};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::errors::{assert_says, assert_unavailable};
use fairlock_tests::sentinel::MASTER;
use fairlock_tests::tls::{Certificates, Flaw};
use fairlock_tests::{Alone, Cluster, RedisServer, Sentinels, WorkDir};

/// Set in the second process, which trusts the certificates. This process can't change its own environment without
/// unsafe code.
const URL: &str = "FAIRLOCK_TEST_TLS_SERVERS";

/// The body of the second process: takes turns on some locks, or says why it can't.
fn is_the_second_process() -> bool {
    let Ok(url) = std::env::var(URL) else { return false };
    let (one, other) = match connect(&url) {
        Ok(backend) => (Client::new(backend).unwrap(), Client::new(connect(&url).unwrap()).unwrap()),
        Err(error) => {
            println!("refused: {error:?}");
            return true;
        }
    };
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

/// Runs `test` again in a process that trusts the authority, and returns what it says.
fn in_a_process_that_trusts(test: &str, url: &str, authority: &Path) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(URL, url).env("SSL_CERT_FILE", authority);
    let child = child.output().unwrap();
    assert!(child.status.success(), "{child:?}");
    String::from_utf8_lossy(&child.stdout).into_owned()
}

/// The second process trusts the authority. This process does not, and is refused.
#[track_caller]
fn works(test: &str, url: &str, authority: &Path) {
    let said = in_a_process_that_trusts(test, url, authority);
    assert!(said.contains("ten locks over TLS: done"), "{said}");
    let error = RedisBackend::connect(url).unwrap_err();
    assert!(error.to_string().contains("certificate is not trusted"), "{error}");
}

fn hosts(servers: &[RedisServer]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect::<Vec<_>>().join(",")
}

#[test]
fn sentinels_and_their_servers_are_reached_over_tls() {
    let _alone = Alone::here();
    if is_the_second_process() {
        return;
    }
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let sentinels = Sentinels::builder().tls(&certificates).steady().start();
    works(
        "sentinels_and_their_servers_are_reached_over_tls",
        &format!("rediss+sentinel://{}/{MASTER}", hosts(&sentinels.sentinels)),
        &certificates.ca,
    );
    assert_eq!(sentinels.servers[0].query::<i64>(&["DBSIZE"]), 10, "the locks are on this server");
}

#[test]
fn the_nodes_of_a_cluster_are_reached_over_tls() {
    let _alone = Alone::here();
    if is_the_second_process() {
        return;
    }
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let cluster = Cluster::start_with(Replicas::None, |node| node.tls_with(&certificates));
    works(
        "the_nodes_of_a_cluster_are_reached_over_tls",
        &format!("rediss+cluster://{}", hosts(&cluster.nodes[..1])),
        &certificates.ca,
    );
    let tokens: i64 = cluster.nodes.iter().map(|node| node.query::<i64>(&["DBSIZE"])).sum();
    assert_eq!(tokens, 10);
}

#[test]
fn a_server_is_reached_over_tls() {
    let _alone = Alone::here();
    if is_the_second_process() {
        return;
    }
    let server = RedisServer::builder().tls().requirepass("secret").start();
    works("a_server_is_reached_over_tls", &server.url(), server.ca_file());
    assert_eq!(server.query::<i64>(&["DBSIZE"]), 10, "it was this server");
}

#[test]
fn an_expired_certificate_or_one_for_another_host_is_refused() {
    let _alone = Alone::here();
    if is_the_second_process() {
        return;
    }
    for (flaw, word) in [(Flaw::Expired, "Expired"), (Flaw::WrongHost, "not valid for name")] {
        let server = RedisServer::builder().flawed_tls(flaw).requirepass("kanarie").start();
        let test = "an_expired_certificate_or_one_for_another_host_is_refused";
        let said = in_a_process_that_trusts(test, &server.url(), server.ca_file());
        let parts = ["refused: ", &server.address(), "certificate is not trusted", word, "InvalidConfig"];
        assert_says(&said.replace('\n', " "), &parts);
        assert!(!said.contains("kanarie"), "{said}");
        assert!(server.clients().is_empty());
    }
}

/// It gets an answer in time.
#[track_caller]
fn connect(url: &str) -> Result<RedisBackend, Error> {
    let began = Instant::now();
    let answer = RedisBackend::connect(url);
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    answer
}

#[test]
fn an_untrusted_certificate_is_refused_and_tls_is_never_given_up() {
    let _alone = Alone::here();
    let server = RedisServer::builder().tls().requirepass("kanarie").start();
    let error = connect(&server.url()).unwrap_err();
    assert_says(&error, &["Redis at ", &server.address(), "the server's certificate is not trusted"]);
    assert!(matches!(error, Error::InvalidConfig { .. }));
    assert!(server.clients().is_empty());
    // Neither side falls back to plain text.
    let plain = connect(&server.url().replace("rediss", "redis"));
    assert_unavailable(plain, &[&server.address()]);
    let without = RedisServer::start();
    let tls = connect(&without.url().replace("redis", "rediss"));
    assert_unavailable(tls, &[&without.address()]);
    assert_eq!(without.query::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}
