//! Servers, sentinels and a cluster that speak only TLS, also with each other; and certificates that are not trusted.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fairlock::settings::RedisBuilder;
use fairlock::settings::rustls_0_23::crypto::{CryptoProvider, ring};
use fairlock::settings::rustls_0_23::pki_types::pem::PemObject;
use fairlock::settings::rustls_0_23::pki_types::{CertificateDer, PrivateKeyDer};
use fairlock::settings::rustls_0_23::{ClientConfig, RootCertStore};
use fairlock::{Client, Error, RedisBackend};
use fairlock_tests::cluster::Replicas;
use fairlock_tests::errors::{assert_says, assert_unavailable};
use fairlock_tests::locks::patient;
use fairlock_tests::sentinel::MASTER;
use fairlock_tests::tls::{Certificates, ClientCertificate, Flaw};
use fairlock_tests::{Alone, Cluster, RedisServer, RedisServerBuilder, Sentinels, WorkDir, eventually};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// Far longer than anything here takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

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
        take_turns(&clients);
        println!("ten locks over TLS: done");
    }
    true
}

/// Ten locks, each granted to both.
fn take_turns(clients: &[Client; 2]) {
    for number in 0..10 {
        let lock = |client: &Client| client.fair_lock(format!("lock:{number}")).unwrap();
        let [first, second] = clients.each_ref().map(|client| lock(client).request().unwrap());
        first.wait().unwrap().unlock().unwrap();
        second.wait().unwrap().unlock().unwrap();
    }
}

/// Runs `test` again in a process that trusts the authority, and returns what it says.
fn in_a_process_that_trusts(authority: &Path, test: &str, urls: &[String]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("tls::{test}"), "--nocapture"]).env(URLS, urls.join(" "));
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
    let server = RedisServer::builder().tls_with(&certificates).requirepass("canary").start();
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
        let error = patient(url).connect().unwrap_err();
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
        assert_says(&said, &["invalid configuration", "no certificate of an authority can be read ("]);
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
        let parts =
            ["refused: ", &server.address(), "certificate is not trusted", word, "invalid configuration"];
        assert_says(&said.replace('\n', " "), &parts);
        assert!(!said.contains("kanarie"), "{said}");
        assert!(server.clients().is_empty());
    }
}

fn connect(url: &str) -> Result<RedisBackend, Error> {
    // One server can also be that of a client of the crate `redis`, which was built without TLS here.
    match url.strip_prefix("rediss://") {
        Some(rest) if !url.contains('?') => {
            RedisBackend::builder_from(&over_tls(&format!("redis://{rest}"))).connect_timeout(BOUND).connect()
        }
        _ => patient(url).connect(),
    }
}

fn over_tls(url: &str) -> ConnectionInfo {
    let info = url.into_connection_info().unwrap();
    let ConnectionAddr::Tcp(host, port) = info.addr().clone() else { panic!("{url}") };
    info.set_addr(ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None })
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
    let tls = over_tls(&without.url());
    let tls = RedisBackend::builder_from(&tls).connect_timeout(Duration::from_secs(1)).connect();
    assert_unavailable(tls, &[&without.address()]);
    assert_eq!(without.query::<Vec<String>>(&["KEYS", "*"]), [""; 0]);
}

/// The end of an address that names these files.
/// Needs a real server with TLS. The authority is replaced at one end before the other: for a client that was connected an outage, which
/// passes; for another one a mistake.
#[test]
fn a_changed_authority_is_an_outage_once_connected() {
    let _alone = Alone::here();
    let [ours, others] = [(); 2].map(|()| WorkDir::new());
    let [ours, others] =
        [&ours, &others].map(|dir| (Certificates::make(dir.path(), None), dir.file("trusted")));
    let server = RedisServer::builder().tls_with(&ours.0).start();
    let (file, trust) = (&ours.1, |ca: &Path| fs::copy(ca, &ours.1).unwrap());
    let url = format!("{}?sslrootcert={}", server.url(), file.display());
    trust(&ours.0.ca);
    let lock = Client::new(connect(&url).unwrap()).unwrap().fair_lock("x").unwrap();
    drop(lock.try_lock().unwrap());
    trust(&others.0.ca);
    let _: i64 = server.query(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("it connects anew", || {
        let error = lock.try_lock().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        error.to_string().contains("not trusted")
    });
    let mistake = connect(&url).unwrap_err();
    assert!(matches!(mistake, Error::InvalidConfig { .. }), "{mistake:?}");
    trust(&ours.0.ca);
    eventually("it is over", || lock.try_lock().is_ok());
}

fn files(ca: &Path, own: &ClientCertificate) -> String {
    format!("?sslrootcert={}&sslcert={}&sslkey={}", ca.display(), own.cert.display(), own.key.display())
}

/// A program's own configuration, of the same files, with one cipher as for a provider with a certificate of its own.
fn configuration(ca: &Path, own: &ClientCertificate) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let one_cipher = vec![ring::cipher_suite::TLS13_AES_256_GCM_SHA384];
    let provider = Arc::new(CryptoProvider { cipher_suites: one_cipher, ..ring::default_provider() });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(&own.cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
    Arc::new(config.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
}

/// Commands, wake-ups, and the questions to sentinels and nodes show the certificate.
#[test]
fn servers_sentinels_and_nodes_get_the_clients_certificate() {
    let _alone = Alone::here();
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let own = certificates.client("client", "worker", None);
    let server = RedisServer::builder().tls_with(&certificates).arg("tls-auth-clients", "yes").start();
    let sentinels = Sentinels::builder().tls(&certificates).asks_for_certificates().steady().start();
    let node = |node: RedisServerBuilder| node.tls_with(&certificates).arg("tls-auth-clients", "yes");
    let cluster = Cluster::start_with(Replicas::None, node);
    let urls = [
        server.url(),
        format!("rediss+sentinel://{}/{MASTER}", hosts(&sentinels.sentinels)),
        format!("rediss+cluster://{}", hosts(&cluster.nodes[..1])),
    ];
    let by_files = |url: &str| patient(&(url.to_owned() + &files(&certificates.ca, &own)));
    let config = configuration(&certificates.ca, &own);
    let by_config = |url: &str| patient(url).tls(Arc::clone(&config));
    for url in &urls {
        let clients: [RedisBuilder; 2] = [by_files(url), by_config(url)];
        take_turns(&clients.map(|builder| Client::new(builder.connect().unwrap()).unwrap()));
        let without = format!("{url}?sslrootcert={}", certificates.ca.display());
        let error = connect(&without).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert_says(
            &error,
            &["127.0.0.1:", "asks for a client's certificate", "sslcert=FILE and sslkey=FILE"],
        );
    }
}

/// Each is told at once, however long `connect` may try, and names the file or the server, the reason, and what to do.
#[test]
fn a_wrong_certificate_or_key_is_told_at_once_with_what_to_do() {
    let _alone = Alone::here();
    let [ours, others] = [(); 2].map(|()| WorkDir::new());
    let certificates = Certificates::make(ours.path(), None);
    let foreign = Certificates::make(others.path(), None);
    let server = RedisServer::builder()
        .tls_with(&certificates)
        .arg("tls-auth-clients", "yes")
        .requirepass("kanarie")
        .start();
    let good = certificates.client("good", "worker", None);
    let expired = certificates.client("expired", "worker", Some(Flaw::Expired));
    let strange = foreign.client("strange", "worker", None);
    let passphrase = "papegaai";
    let encrypted = certificates.encrypted(&good.key, passphrase);
    let old_form = ours.path().join("old.key");
    fs::write(&old_form, "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n").unwrap();
    let garbled = ours.path().join("garbled.key");
    fs::write(&garbled, "-----BEGIN PRIVATE KEY-----\nkanarie!\n-----END PRIVATE KEY-----\n").unwrap();
    let ca = &certificates.ca;
    let with = |cert: &Path, key: &Path| ClientCertificate { cert: cert.to_owned(), key: key.to_owned() };
    let nowhere = Path::new("/nowhere/client.pem");
    let address = server.address();
    for (options, parts) in [
        (
            files(&foreign.ca, &good),
            vec![&*address, "not trusted", "UnknownIssuer", "no authority in `", "sslrootcert=FILE"],
        ),
        (files(ca, &strange), vec![&address, "refuses", "UnknownCA", "strange.crt`", "its log"]),
        (
            files(ca, &expired),
            vec![&address, "refuses", "past the end of", "expired.crt`", "CertificateExpired"],
        ),
        (
            files(nowhere, &good),
            vec![&address, "`/nowhere/client.pem` can't be read", "No such file", "sslrootcert has to"],
        ),
        (files(ca, &with(nowhere, &good.key)), vec!["`/nowhere/client.pem` can't be read", "sslcert has to"]),
        (files(ca, &with(&good.cert, nowhere)), vec!["`/nowhere/client.pem` can't be read", "sslkey has to"]),
        (files(ca, &with(&good.cert, ours.path())), vec!["can't be read", "Is a directory", "sslkey has to"]),
        (
            files(ca, &with(&good.cert, &garbled)),
            vec!["garbled.key` can't be read", "no valid PEM", "sslkey has to"],
        ),
        (files(ca, &with(&good.cert, ca)), vec!["ca.crt` can't be read", "none in PEM", "sslkey has to"]),
        (
            files(ca, &with(&good.cert, &expired.key)),
            vec!["expired.key` is not that of the certificate in `", "good.crt`", "pair"],
        ),
        (
            files(ca, &with(&good.cert, &encrypted)),
            vec!["good.encrypted` is encrypted", "openssl pkey -in", "sslkey=FILE"],
        ),
        (files(ca, &with(&good.cert, &old_form)), vec!["old.key` is encrypted", "openssl pkey -in"]),
    ] {
        let url = server.url() + &options;
        let error = patient(&url).connect_within(BOUND).connect().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert_says(&error, &parts);
        for secret_or_gap in ["kanarie", passphrase, "  "] {
            assert!(!error.to_string().contains(secret_or_gap), "{error}");
        }
    }
    // One file may have both, and the authority in between.
    let both = ours.path().join("both.pem");
    let texts = [&good.cert, ca, &good.key].map(|path| fs::read_to_string(path).unwrap());
    fs::write(&both, texts.concat()).unwrap();
    connect(&format!("{}?sslrootcert={}&sslcert={}", server.url(), ca.display(), both.display())).unwrap();
}

/// A configuration of the program's own, beside an address without TLS, or with files.
#[test]
fn a_configuration_has_to_fit_its_address() {
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let config = configuration(&certificates.ca, &certificates.client("client", "worker", None));
    for (url, part) in [
        ("redis://127.0.0.1:1", "write rediss for redis"),
        ("redis+sentinel://127.0.0.1:1/m", "write rediss for redis"),
        ("unix:///run/redis.sock", "a socket's path"),
        ("rediss://127.0.0.1:1?sslcert=a.pem", "leave out one or the other"),
        ("rediss+cluster://127.0.0.1:1?sslrootcert=a.pem", "leave out one or the other"),
    ] {
        let error = RedisBackend::builder(url).tls(Arc::clone(&config)).connect().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
        assert_says(&error, &["`tls` is set", part]);
    }
}
