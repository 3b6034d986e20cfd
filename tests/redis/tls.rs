//! Servers, sentinels and a cluster that speak only TLS, also with each other; and certificates that are not trusted.

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
const URLS: &str = "FAIRLOCK_TEST_TLS_SERVERS";

/// The body of the second process: takes turns on some locks of each server, or says why it can't.
fn is_the_second_process() -> bool {
    let Ok(urls) = std::env::var(URLS) else { return false };
    for url in urls.split(' ') {
        let clients = match [connect(url), connect(url)] {
            [Ok(one), Ok(other)] => [one, other].map(|backend| Client::new(backend).unwrap()),
            [Err(error), _] | [_, Err(error)] => {
                println!("refused: {error:?}");
                continue;
            }
        };
        for number in 0..10 {
            let lock = |client: &Client| client.fair_lock(&format!("lock:{number}")).unwrap();
            let [first, second] = clients.each_ref().map(|client| lock(client).request().unwrap());
            first.wait().unwrap().unlock().unwrap();
            second.wait().unwrap().unlock().unwrap();
        }
        println!("ten locks over TLS: done");
    }
    true
}

/// Runs `test` again in a process that trusts the authority, and returns what it says.
fn in_a_process_that_trusts(authority: &Path, test: &str, urls: &[String]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(URLS, urls.join(" "));
    child.env("SSL_CERT_FILE", authority).env_remove("SSL_CERT_DIR");
    let child = child.output().unwrap();
    assert!(child.status.success(), "{child:?}");
    String::from_utf8_lossy(&child.stdout).into_owned()
}

fn hosts(servers: &[RedisServer]) -> String {
    servers.iter().map(RedisServer::address).collect::<Vec<_>>().join(",")
}

/// The second process trusts their authority. This process does not, and is refused.
#[test]
fn servers_sentinels_and_nodes_are_reached_over_tls() {
    let _alone = Alone::here();
    if is_the_second_process() {
        return;
    }
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let server = RedisServer::builder().tls_with(&certificates).requirepass("secret").start();
    let sentinels = Sentinels::builder().tls(&certificates).steady().start();
    let cluster = Cluster::start_with(Replicas::None, |node| node.tls_with(&certificates));
    let urls = [
        server.url(),
        format!("rediss+sentinel://{}/{MASTER}", hosts(&sentinels.sentinels)),
        format!("rediss+cluster://{}", hosts(&cluster.nodes[..1])),
    ];
    let test = "servers_sentinels_and_nodes_are_reached_over_tls";
    let said = in_a_process_that_trusts(&certificates.ca, test, &urls);
    assert_eq!(said.matches("ten locks over TLS: done").count(), 3, "{said}");
    for url in &urls {
        let error = RedisBackend::connect(url).unwrap_err();
        assert!(error.to_string().contains("certificate is not trusted"), "{error}");
    }
    // The tokens of the locks are on these servers.
    let keys = |servers: &[RedisServer]| servers.iter().map(|it| it.query::<i64>(&["DBSIZE"])).sum::<i64>();
    let all = [std::slice::from_ref(&server), &sentinels.servers[..1], &cluster.nodes[..]];
    assert_eq!(all.map(keys), [10; 3]);
}

/// The system's bundle has certificates of many authorities, and one that can't be read is none of the peer's business.
#[test]
fn an_unreadable_certificate_takes_nothing_from_the_others() {
    let _alone = Alone::here();
    if is_the_second_process() {
        return;
    }
    let server = RedisServer::builder().tls().requirepass("kanarie").start();
    let test = "an_unreadable_certificate_takes_nothing_from_the_others";
    let good = std::fs::read_to_string(server.ca_file()).unwrap();
    for bad in ["AAAA", "!"] {
        let bad = format!("-----BEGIN CERTIFICATE-----\n{bad}\n-----END CERTIFICATE-----\n");
        let (dir, says) = (WorkDir::new(), |bundle: &str, dir: &WorkDir| {
            std::fs::write(dir.file("bundle"), bundle).unwrap();
            in_a_process_that_trusts(&dir.file("bundle"), test, &[server.url()])
        });
        for bundle in [format!("{good}{bad}"), format!("{bad}{good}")] {
            let said = says(&bundle, &dir);
            assert!(said.contains("ten locks over TLS: done"), "{said}");
        }
        let said = says(&bad, &dir).replace('\n', " ");
        assert_says(&said, &["InvalidConfig", "no certificate of an authority can be read ("]);
    }
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
        let said = in_a_process_that_trusts(server.ca_file(), test, &[server.url()]);
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

/// An untrusted certificate is refused, and TLS is never given up.
#[test]
fn an_untrusted_certificate_is_refused_and_tls_is_kept() {
    let _alone = Alone::here();
    let server = RedisServer::builder().tls().requirepass("kanarie").start();
    let error = connect(&server.url()).unwrap_err();
    assert_says(&error, &["Redis at ", &server.address(), "the server's certificate is not trusted"]);
    assert!(matches!(error, Error::InvalidConfig { .. }));
    assert!(server.clients().is_empty());
    // Neither side falls back to plain text.
    let plain = connect(&server.url().replace("rediss", "redis")).unwrap_err();
    assert_says(&plain, &[&server.address(), "the port has TLS", "write rediss for redis in the address"]);
    assert!(matches!(plain, Error::InvalidConfig { .. }));
    let without = RedisServer::start();
    let tls = connect(&without.url().replace("redis", "rediss"));
    assert_unavailable(tls, &[&without.address()]);
    assert_eq!(without.query::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}
