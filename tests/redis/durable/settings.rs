//! Clients that do not fit together, what can't be durable, and what an operator sees and does.

use std::time::{Duration, Instant};

use fairlock::admin::Verdict;
use fairlock::settings::Durability;
use fairlock::{Client, Error, RedisBackend, TryLock};
use fairlock_tests::errors::assert_says;

use super::support::*;

#[track_caller]
fn invalid<T>(result: Result<T, Error>, parts: &[&str]) {
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    assert_says(&error, parts);
}

/// What doctor says of the server's life to a client with this durability.
fn findings(server: &RedisServer, durability: Option<Durability>) -> Vec<(Verdict, String)> {
    let builder = RedisBackend::builder(&server.url());
    let builder = durability.into_iter().fold(builder, |builder, durability| builder.durable(durability));
    let findings = builder.connect().unwrap().doctor().unwrap();
    let life = findings.into_iter().filter(|found| found.topic == "life");
    life.map(|found| (found.verdict, found.text)).collect()
}

#[test]
fn a_client_with_another_grace_is_refused() {
    let server = known();
    let builder = RedisBackend::builder(&server.url()).durable(Durability::default());
    let other = Client::new(builder.connect().unwrap()).unwrap();
    let says = ["other clients of the server have another grace", "2122 ms", "10602 ms"];
    invalid(other.fair_lock("a").unwrap().try_lock(), &says);
    let found = findings(&server, Some(Durability::default()));
    assert!(found.iter().any(|(verdict, text)| *verdict == Verdict::Unsafe && text.contains("2122 ms")));
    let found = findings(&server, None);
    assert!(found.iter().any(|(_, text)| text.contains("other clients of this server are durable")));
}

/// A client that is not durable is refused locks with a queue beside clients that are durable: it would be granted a lock whose
/// holder the server has forgotten.
#[test]
fn a_client_that_is_not_durable_is_refused_a_queue() {
    let server = CleanServer::start();
    let not = || Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    // It connects, and locks, before any client is durable.
    let earlier = not();
    assert!(try_lock(&earlier, "before"));
    backend(&server).begin_life().unwrap();
    let ours = client(&server);
    let guard = take(&ours, "both");
    let refusal = |client: &Client| client.fair_lock("both").unwrap().try_lock().map(drop).err();
    for client in [not(), earlier] {
        let (mut error, mut asked) = (refusal(&client), Instant::now());
        // A connection that is open already looks after a pause.
        eventually("it is refused", || {
            if error.is_none() && asked.elapsed() > Duration::from_millis(1200) {
                (error, asked) = (refusal(&client), Instant::now());
            }
            error.is_some()
        });
        let says = [
            "configuration: lock `both`: this client is not `durable`",
            "2122 ms",
            "configure `RedisBuilder::durable`",
            "`fairlock_life`",
        ];
        invalid(error.map_or(Ok(()), Err), &says);
        server.query::<()>(&["FLUSHALL"]);
        assert!(refusal(&client).is_some(), "a holder that the server has forgotten may live");
        invalid(
            client.rw_lock("rw").unwrap().writer().try_lock(),
            &["lock `rw`: this client is not `durable`"],
        );
        let plain = client.plain_lock("plain").unwrap().try_lock().unwrap().granted();
        plain.expect("it is free").unlock().unwrap();
        assert!(guard.renew().is_ok());
    }
    guard.unlock().unwrap();
}

/// One stray command with `--durable` must not switch a service off for as long as it lives.
#[test]
fn a_client_that_was_refused_goes_on_once_the_life_is_deleted() {
    let server = CleanServer::start();
    let service = Client::new(RedisBackend::connect(&server.url()).unwrap()).unwrap();
    assert!(try_lock(&service, "service"));
    let stray = backend(&server);
    assert!(stray.begins_life());
    let stray = Client::new(stray).unwrap();
    assert!(matches!(stray.fair_lock("stray").unwrap().try_lock(), Ok(TryLock::Busy(_))), "in the grace");
    drop(stray);
    assert!(!backend(&server).begins_life());
    let is_refused = || service.fair_lock("service").unwrap().try_lock().is_err();
    // A connection that is open already looks after a pause.
    eventually("it is refused", || {
        let refused = is_refused();
        if !refused {
            std::thread::sleep(Duration::from_millis(1200));
        }
        refused
    });
    server.query::<i64>(&["DEL", LIFE]);
    // No holder that the server has forgotten has brought it back within a grace of 2.1 s.
    let waited = eventually("it goes on", || !is_refused());
    assert!(waited > Duration::from_secs(2), "after {waited:?}");
    assert!(try_lock(&service, "service"));
    assert!(backend(&server).begins_life());
}
