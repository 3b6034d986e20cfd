//! `sslmode` and `sslrootcert`: when a session has TLS, and whose certificate it trusts.

use std::fs;

use fairlock::{Error, PostgresBackend};
use fairlock_tests::errors::assert_says;
use fairlock_tests::tls::{Certificates, Flaw};
use fairlock_tests::{Alone, PostgresServer, WorkDir, eventually};

use crate::support::{SOON, client, granted, request, take};

/// Who may log in only with TLS, and who only without.
const LOGINS: &str = "local all all trust\nhostssl all secure all trust\nhostnossl all plain all trust\nhost all fairlock all trust\n";

/// Whether a client has TLS that connects so.
fn has_tls(server: &PostgresServer, url: &str) -> Result<bool, Error> {
    let backend = PostgresBackend::connect(&format!("{url}&application_name=asked"))?;
    let sql =
        "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'asked'";
    let answer = server.con().query_one(sql, &[]).unwrap().get(0);
    drop(backend);
    eventually(SOON, "its session has ended", || server.con().query(sql, &[]).unwrap().is_empty());
    Ok(answer)
}

#[track_caller]
fn assert_refused(url: &str, parts: &[&str]) {
    let error = PostgresBackend::connect(url).unwrap_err();
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
    let plain = crate::support::server();
    for mode in ["allow", "prefer"] {
        assert!(!has_tls(plain, &format!("{}?sslmode={mode}", plain.url())).unwrap(), "{mode}");
    }
}
