//! `sslmode` and `sslrootcert`: when a session has TLS, and whose certificate it trusts.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fairlock::settings::rustls_0_23::crypto::{CryptoProvider, ring};
use fairlock::settings::rustls_0_23::pki_types::pem::PemObject;
use fairlock::settings::rustls_0_23::pki_types::{CertificateDer, PrivateKeyDer};
use fairlock::settings::rustls_0_23::{ClientConfig, RootCertStore};
use fairlock::{Client, Error};
use fairlock_tests::errors::assert_says;
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::tls::{Certificates, ClientCertificate, Flaw};
use fairlock_tests::{Alone, PostgresServer, WorkDir, eventually};

use super::held::{SOON, client, patient};

/// Who may log in only with TLS, and who only without.
const LOGINS: &str = "local all all trust\nhostssl all secure all trust\nhostnossl all plain all trust\nhost all fairlock all trust\n";

/// Whether a client has TLS that connects so.
fn has_tls(server: &PostgresServer, url: &str) -> Result<bool, Error> {
    let backend = patient(&format!("{url}&application_name=asked")).connect()?;
    let sql =
        "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'asked'";
    let answer = server.con().query_one(sql, &[]).unwrap().get(0);
    drop(backend);
    eventually("its session has ended", || server.con().query(sql, &[]).unwrap().is_empty());
    Ok(answer)
}

#[track_caller]
fn assert_refused(url: &str, parts: &[&str]) {
    let error = patient(url).connect().unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{url}: {error:?}");
    assert_says(&error, parts);
}

#[test]
fn sslmode_and_sslrootcert_mean_what_they_mean_to_libpq() {
    let _alone = Alone::here();
    let [ours, others, elsewhere] = [(); 3].map(|()| WorkDir::new());
    let certificates = Certificates::make(ours.path(), None);
    let other = Certificates::make(others.path(), None);
    let server = PostgresServer::builder().tls(&certificates).start();
    server
        .con()
        .batch_execute("create role secure superuser login; create role plain superuser login")
        .unwrap();
    fs::write(server.dir().join("data/pg_hba.conf"), LOGINS).unwrap();
    server.con().batch_execute("select pg_reload_conf()").unwrap();
    let url = |options: &str| format!("{}?{options}", server.url());
    let of = |role: &str, options: &str| url(options).replace("fairlock@", &format!("{role}@"));
    let [file, wrong, empty] = [certificates.ca.clone(), other.ca, elsewhere.path().join("empty.crt")];
    let [file, wrong, empty] = [&file, &wrong, &empty].map(|path| format!("sslrootcert={}", path.display()));
    fs::write(elsewhere.path().join("empty.crt"), "no certificate\n").unwrap();
    for (url, tls) in [
        (url("sslmode=disable"), false),
        (url("sslmode=allow"), false),
        (url("sslmode=prefer"), true),
        (url(&file), true),
        // As libpq: a handshake that fails is no more than TLS that is not to be had.
        (url(&format!("sslmode=prefer&{wrong}")), false),
        (url(&format!("sslmode=require&{file}")), true),
        (url(&format!("sslmode=verify-ca&{file}")), true),
        (url(&format!("sslmode=verify-full&{file}")), true),
        (of("secure", "sslmode=allow"), true),
        (of("secure", &format!("sslmode=allow&{file}")), true),
        (of("plain", "sslmode=prefer"), false),
    ] {
        assert_eq!(has_tls(&server, &url).unwrap(), tls, "{url}");
    }
    let untrusted = ["certificate is not trusted", "sslrootcert=FILE names"];
    for mode in ["require", "verify-ca", "verify-full"] {
        assert_refused(&url(&format!("sslmode={mode}&{wrong}")), &untrusted);
        assert_refused(&url(&format!("sslmode={mode}")), &untrusted); // not by one of the system
    }
    assert_refused(&url("sslrootcert=system"), &untrusted);
    for mode in ["prefer", "verify-full"] {
        let parts = ["`/nowhere/ca.crt` can't be read", "No such file", "sslrootcert"];
        assert_refused(&url(&format!("sslmode={mode}&sslrootcert=/nowhere/ca.crt")), &parts);
        assert_refused(
            &url(&format!("sslmode={mode}&{empty}")),
            &["empty.crt` can't be read", "none in PEM"],
        );
    }
    // Wake-ups and commands, with a certificate for another host.
    let far = WorkDir::new();
    let certificates = Certificates::make(far.path(), Some(Flaw::WrongHost));
    for (from, name) in [(&certificates.cert, "server.crt"), (&certificates.key, "server.key")] {
        fs::copy(from, server.dir().join("data").join(name)).unwrap(); // which keeps its owner and its rights
    }
    server.restart();
    let file = format!("sslrootcert={}", certificates.ca.display());
    assert_refused(
        &url(&format!("sslmode=verify-full&{file}")),
        &["certificate is not trusted", "127.0.0.1"],
    );
    let [ours, theirs] = [(); 2].map(|()| client(&url(&format!("sslmode=verify-ca&{file}"))));
    let guard = take(&ours.fair_lock("x").unwrap());
    let waiting = request(&theirs, "x");
    guard.unlock().unwrap();
    granted(waiting, SOON).unlock().unwrap();
    let plain = PostgresServer::shared();
    for mode in ["allow", "prefer"] {
        assert!(!has_tls(plain, &format!("{}?sslmode={mode}", plain.url())).unwrap(), "{mode}");
    }
}

/// Needs a real server with TLS. The authority is replaced at one end before the other: for a client that was connected an outage, which
/// passes; for another one a mistake.
#[test]
fn a_changed_authority_is_an_outage_once_connected() {
    let _alone = Alone::here();
    let [ours, others] = [(); 2].map(|()| WorkDir::new());
    let file = ours.path().join("trusted");
    let [ours, others] = [&ours, &others].map(|dir| Certificates::make(dir.path(), None));
    let server = PostgresServer::builder().tls(&ours).start();
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), file.display());
    fs::copy(&ours.ca, &file).unwrap();
    let lock = client(&url).fair_lock("x").unwrap();
    drop(lock.try_lock().unwrap());
    fs::copy(&others.ca, &file).unwrap();
    let end = "select pg_terminate_backend(pid) from pg_stat_ssl join pg_stat_activity using (pid) where ssl";
    server.con().query(end, &[]).unwrap();
    eventually("it connects anew", || {
        let error = lock.try_lock().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        error.to_string().contains("not trusted")
    });
    assert_refused(&url, &["not trusted"]);
    fs::copy(&ours.ca, &file).unwrap();
    eventually("it is over", || lock.try_lock().is_ok());
}

/// A server that lets in who shows a certificate in the name of the user.
fn asking(certificates: &Certificates) -> PostgresServer {
    let server = PostgresServer::builder().tls(certificates).start();
    let logins = "local all all trust\nhostssl all all all trust clientcert=verify-full\n";
    fs::write(server.dir().join("data/pg_hba.conf"), logins).unwrap();
    fs::copy(&certificates.ca, server.dir().join("data/ca.crt")).unwrap();
    server.con().batch_execute("alter system set ssl_ca_file = 'ca.crt'").unwrap();
    server.restart();
    server
}

fn files(ca: &Path, own: &ClientCertificate) -> String {
    format!(
        "sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
        ca.display(),
        own.cert.display(),
        own.key.display()
    )
}

/// Commands, wake-ups and cancels show it; a configuration of the program's own, too, with its own cipher.
#[test]
fn a_server_with_clientcert_gets_the_clients_certificate() {
    let _alone = Alone::here();
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let server = asking(&certificates);
    let own = certificates.client("client", "fairlock", None);
    let by_files = client(&format!("{}?{}", server.url(), files(&certificates.ca, &own)));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificates.ca).unwrap()).unwrap();
    let one_cipher = vec![ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let provider = Arc::new(CryptoProvider { cipher_suites: one_cipher, ..ring::default_provider() });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_file(&own.cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
    let config = config.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    let url = format!("{}?application_name=configured", server.url());
    let builder = || patient(&url).tls(Arc::new(config.clone()));
    builder().migrate().unwrap();
    let by_config = Client::new(builder().connect().unwrap()).unwrap();
    for [one, other] in [[&by_files, &by_config], [&by_config, &by_files]] {
        let guard = take(&one.fair_lock("x").unwrap());
        let waiting = request(other, "x");
        guard.unlock().unwrap();
        granted(waiting, SOON).unlock().unwrap();
    }
    let ciphers = "select distinct cipher from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'configured'";
    let ciphers = server.con().query(ciphers, &[]).unwrap();
    assert_eq!(ciphers.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["TLS_CHACHA20_POLY1305_SHA256"]);
    let silent = url.replace('?', "?sslmode=disable&");
    let error = patient(&silent).tls(Arc::new(config)).connect().unwrap_err();
    assert_says(&error, &["`tls` is set", "sslmode=disable"]);
}
