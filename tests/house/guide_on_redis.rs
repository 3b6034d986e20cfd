//! The guide's examples on Redis.

use std::fs;
use std::time::Duration;

use fairlock::settings::Discipline;
use fairlock::{Client, RedisBackend};
use fairlock_tests::files::root;
use fairlock_tests::{Alone, RedisServer, assert_no_residue};

#[test]
fn getting_started_on_redis() -> fairlock::Result<()> {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let url = &server.url();
    {
        let client = Client::new(RedisBackend::connect(url)?)?;
        let lock = client.fair_lock("lock:report")?;

        let guard = lock.lock()?;
        println!("token {}, certain for {:?}", guard.token(), guard.valid_for());
        guard.unlock()?;
        assert!(!lock.is_locked()?);
    }
    let backend = RedisBackend::builder(url).response_timeout(Duration::from_millis(500)).connect()?;
    let client = Client::builder(backend)
        .lease(Duration::from_secs(15)) // how long a dead holder blocks the others
        .label("report-worker") // what others see of us
        .build()?;
    let lock = client.fair_lock("lock:report")?;
    let guard = lock.lock()?;
    let holder = lock.admin().inspect()?.holder().cloned().expect("it is held");
    assert!(holder.label.is_some_and(|label| label.starts_with("report-worker (")));
    assert!(holder.lease_left <= Some(Duration::from_secs(15)));
    drop((guard, lock, client));
    assert_no_residue(&server, &[]);
    Ok(())
}

#[test]
fn a_lock_shared_with_java() -> fairlock::Result<()> {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let url = &server.url();
    let backend = RedisBackend::builder(url).discipline(Discipline::Redisson).connect()?;
    let lock = Client::new(backend)?.fair_lock("orders")?; // Java: redisson.getFairLock("orders")
    let guard = lock.lock()?;
    let other = RedisBackend::builder(url).discipline(Discipline::Redisson).connect()?;
    let waiting = Client::new(other)?.fair_lock("orders")?.request()?;
    assert_eq!(server.query::<u64>(&["LLEN", "redisson_lock_queue:{orders}"]), 1, "Java's queue");
    drop(waiting);
    guard.unlock()?;
    Ok(())
}

/// The rights in the guide are enough for all names with a prefix.
#[test]
fn the_guides_rights_are_enough_for_names_with_a_prefix() {
    let _alone = Alone::here();
    let reference = fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let rules = reference.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let rules = rules.replace("NAME", "lock:*");
    let server = RedisServer::start();
    let words: Vec<&str> = ["ACL", "SETUSER", "guide", "reset", "on", ">canary"]
        .into_iter()
        .chain(rules.split_whitespace())
        .collect();
    server.query::<()>(&words);
    let connect = || Client::new(RedisBackend::connect(&server.url_as("guide", "canary")).unwrap()).unwrap();
    let (one, other) = (connect(), connect());
    for lock_of in [Client::fair_lock, Client::plain_lock] {
        let (ours, theirs) = (lock_of(&one, "lock:a").unwrap(), lock_of(&other, "lock:a").unwrap());
        let guard = ours.lock().unwrap();
        let waiting = theirs.request().unwrap();
        assert!(theirs.admin().inspect().unwrap().holder().is_some());
        guard.unlock().unwrap();
        waiting.wait().unwrap().unlock().unwrap();
        assert!(!ours.admin().force_unlock().unwrap());
    }
    assert!(one.fair_lock("other:a").unwrap().lock().is_err(), "other names are not allowed");
}
