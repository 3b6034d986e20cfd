//! Ways to reach a server: TLS, the Unix socket, options.

use std::fs;
use std::process::Command;

use fairlock::{Client, Error, PostgresBackend, RedisBackend};
use fairlock_tests::errors::assert_says;
use fairlock_tests::locks::{granted, request, take};
use fairlock_tests::tls::Certificates;
use fairlock_tests::{Alone, PostgresServer, WorkDir};

use super::held::{SOON, client, patient, server};

/// Set in the second process, which trusts the authority. This process can't change its environment without unsafe code.
const URL: &str = "FAIRLOCK_TEST_POSTGRES_TLS";

/// Some turns of two clients, by commands and by wake-ups.
fn turns(url: &str) {
    let (ours, theirs) = (client(url), client(url));
    for name in ["a", "b", "c"] {
        let guard = take(&ours.fair_lock(name).unwrap());
        let waiting = request(&theirs, name);
        guard.unlock().unwrap();
        granted(waiting, SOON).unlock().unwrap();
    }
}

/// TLS is used where it is required, and a wrong certificate is refused.
#[test]
fn tls_is_used_where_required_and_bad_certificates_refused() {
    if let Ok(url) = std::env::var(URL) {
        return turns(&url);
    }
    let _alone = Alone::here();
    let dir = WorkDir::new();
    let certificates = Certificates::make(dir.path(), None);
    let server = PostgresServer::builder().tls(&certificates).set("log_connections", "on").start();
    let url = format!("{}?sslmode=require", server.url());
    let test = "store::sessions::tls_is_used_where_required_and_bad_certificates_refused";
    let mut trusting = Command::new(std::env::current_exe().unwrap());
    trusting.args(["--exact", test, "--nocapture"]).env(URL, &url).env("SSL_CERT_FILE", &certificates.ca);
    let done = trusting.output().unwrap();
    assert!(done.status.success() && server.log().contains("SSL enabled (protocol=TLSv1.3"), "{done:?}");
    // This process does not trust the authority.
    assert_says(&PostgresBackend::connect(&url).unwrap_err(), &["certificate is not trusted"]);
    let plain = PostgresServer::shared();
    let error = PostgresBackend::connect(&format!("{}?sslmode=require", plain.url())).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    assert_says(&error, &[&plain.address(), "the server has no TLS"]);
}

/// Of the options, the level of isolation would break the steps if they did not name theirs.
#[test]
fn sockets_and_options_of_the_address_are_used() {
    let _alone = Alone::here();
    let server = server();
    turns(&server.unix_url());
    let options = "options=-c%20default_transaction_isolation%3Dserializable%20-c%20search_path%3Dnowhere&application_name=ours";
    let url = format!("{}?{options}", server.url());
    let crowd: Vec<Client> = (0..4).map(|_| client(&url)).collect();
    std::thread::scope(|scope| {
        for ours in &crowd {
            scope.spawn(|| (0..25).for_each(|_| take(&ours.fair_lock("busy").unwrap()).unlock().unwrap()));
        }
    });
    let sessions = "select count(*) from pg_stat_activity where application_name = 'ours'";
    assert!(server.con().query_one(sessions, &[]).unwrap().get::<_, i64>(0) >= 4);
}

#[test]
fn each_way_to_log_in_works_and_a_wrong_password_is_denied() {
    let _alone = Alone::here();
    let server = PostgresServer::start();
    let rights = "usage on schema fairlock to scram, md5, clear; grant all on all tables in schema fairlock to scram, md5, clear";
    let roles = "set password_encryption = 'scram-sha-256'; create role scram login password 'c@nary'; create role clear login password 'c@nary';
                 set password_encryption = md5; create role md5 login password 'c@nary'; grant ";
    server.con().batch_execute(&format!("{roles}{rights}")).unwrap();
    let logins = "local all all trust\nhost all scram all scram-sha-256\nhost all md5 all md5\nhost all clear all password\n";
    fs::write(server.dir().join("data/pg_hba.conf"), logins).unwrap();
    server.restart();
    for role in ["scram", "md5", "clear"] {
        let with = |password: &str| server.url().replace("fairlock@", &format!("{role}{password}@"));
        take(&client(&with(":c%40nary")).fair_lock(role).unwrap()).unlock().unwrap();
        for (password, cause) in [(":c%40naryy", "28P01"), ("", "the address has none")] {
            let error = patient(&with(password)).connect().unwrap_err().to_string();
            assert!(error.contains(cause) && !error.contains("c@nary"), "{error}");
        }
    }
}

#[test]
fn postgresql_behind_an_address_of_redis_is_named() {
    let _alone = Alone::here();
    let server = server();
    let builder = RedisBackend::builder(&format!("redis://{}", server.address())).connect_within(SOON);
    let error = builder.connect().unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    assert_says(&error, &[&server.address(), "is not Redis (POSTGRESQL answers); check host and port"]);
}
