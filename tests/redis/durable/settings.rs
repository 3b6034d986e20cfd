//! Clients that do not fit together, what can't be durable, and what an operator sees and does.

use std::time::{Duration, Instant};

use fairlock::backend::Backend;
use fairlock::{Client, Discipline, Durability, Error, RedisBackend, TryLock, Verdict};
use fairlock_tests::errors::assert_says;

use crate::support::*;

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
    let findings = builder.connect().unwrap().doctor(None).unwrap();
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
        let plain = client.plain_lock("plain").unwrap().try_lock().unwrap().guard();
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

#[test]
fn doctor_tells_of_a_grace_and_an_operator_ends_it() {
    let server = CleanServer::start();
    let life = || findings(&server, Some(durability())).remove(0);
    assert!(life().1.contains("--begin-life"), "{:?}", life());
    let ours = client(&server);
    assert!(!try_lock(&ours, "a"), "what a new server has forgotten is not known");
    assert!(life().1.contains("it grants nothing for"), "{:?}", life());
    let left = backend(&server).begin_life().unwrap();
    assert!(left > Duration::ZERO && left <= grace(), "{left:?}");
    assert_eq!(life(), (Verdict::Good, "its past is known".to_owned()));
    assert!(try_lock(&ours, "a"));
    assert_eq!(backend(&server).begin_life().unwrap(), Duration::ZERO);
}

#[test]
fn what_can_not_be_durable_is_refused_with_the_reason() {
    let server = known();
    let durable = |durability| RedisBackend::builder(&server.url()).durable(durability);
    let short = durable(Durability::default().trust(Duration::from_millis(999))).connect();
    invalid(short, &["the time is 999 ms, it has to be from 1 s to 1 h (trust)"]);
    let skewed = durable(Durability::default().skew(Duration::from_secs(61))).connect();
    invalid(skewed, &["the time is 61 s, it has to be from 0 s to 60 s (skew)"]);
    let redisson = durable(durability()).discipline(Discipline::Redisson).connect();
    invalid(redisson, &["it is for the discipline HandOff", " (durable)"]);
    let ours = client(&server);
    let long = ours.fair_lock("long").unwrap().fixed_lease(TRUST * 2);
    invalid(long.try_lock(), &["a lease of 4 s is longer than 2 s, the longest with a trust of 2 s"]);
    let plain = ours.plain_lock("plain").unwrap();
    invalid(plain.try_lock(), &["a durable backend has fair locks only"]);
    let long = Client::builder(backend(&server)).lease(TRUST * 2).build();
    invalid(long, &["the time is 4 s, it has to be from 2 s to 2 s, the longest that the backend grants"]);
    assert_eq!(backend(&server).longest_lease(), Some(TRUST));
}
