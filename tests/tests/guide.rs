//! The guide in `docs/`: what it shows on Redis is run here, and its listings are the text of the files they name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock::{Client, Discipline, RedisBackend};
use fairlock_tests::{Alone, RedisServer, assert_no_residue};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn getting_started_on_redis() -> fairlock::Result<()> {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let url = &server.url();
    {
        let client = Client::new(RedisBackend::connect(url)?)?; // "redis://127.0.0.1:6379"
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
    let holder = lock.inspect()?.holder.expect("it is held");
    assert_eq!(holder.label.as_deref(), Some("report-worker"));
    assert!(holder.lease_left <= Some(Duration::from_secs(15)));
    drop((guard, lock, client));
    assert_no_residue(&server, &[]);
    Ok(())
}

#[test]
fn a_lock_that_is_shared_with_java() -> fairlock::Result<()> {
    let _alone = Alone::here();
    let server = RedisServer::start();
    let url = &server.url();
    let backend = RedisBackend::builder(url).discipline(Discipline::Redisson).connect()?;
    let lock = Client::new(backend)?.fair_lock("orders")?; // Java: redisson.getFairLock("orders")
    let guard = lock.lock()?;
    let other = RedisBackend::builder(url).discipline(Discipline::Redisson).connect()?;
    let waiting = Client::new(other)?.fair_lock("orders")?.request()?;
    assert_eq!(server.query::<u64>(&["LLEN", "redisson_lock_queue:{orders}"]), 1, "Java's line");
    drop(waiting);
    guard.unlock()?;
    Ok(())
}

#[test]
fn the_rights_in_the_guide_are_enough_for_all_names_with_a_prefix() {
    let _alone = Alone::here();
    let operating = fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let rules = operating.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let rules = rules.replace("NAME", "lock:*");
    let server = RedisServer::start();
    let words: Vec<&str> = ["ACL", "SETUSER", "guide", "reset", "on", ">pw"]
        .into_iter()
        .chain(rules.split_whitespace())
        .collect();
    server.query::<()>(&words);
    let connect = || Client::new(RedisBackend::connect(&server.url_as("guide", "pw")).unwrap()).unwrap();
    let (one, other) = (connect(), connect());
    for lock_of in [Client::fair_lock, Client::plain_lock] {
        let (ours, theirs) = (lock_of(&one, "lock:a").unwrap(), lock_of(&other, "lock:a").unwrap());
        let guard = ours.lock().unwrap();
        let waiting = theirs.request().unwrap();
        assert!(theirs.inspect().unwrap().holder.is_some());
        guard.unlock().unwrap();
        waiting.wait().unwrap().unlock().unwrap();
        assert!(!ours.force_unlock().unwrap());
    }
    assert!(one.fair_lock("other:a").unwrap().lock().is_err(), "other names are not theirs to use");
}

/// A listing is marked `rs`, since rustdoc could not compile a part of a file, and follows a line that names the file.
#[test]
fn every_listing_is_the_text_of_a_file_that_is_compiled_and_run() {
    let mut listings = 0;
    for chapter in fs::read_dir(root().join("docs")).unwrap() {
        let chapter = chapter.unwrap().path();
        if chapter.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&chapter).unwrap();
        let mut parts = text.split("```rs\n");
        let mut before = parts.next().unwrap();
        for part in parts {
            let (listing, after) = part.split_once("```").expect("a listing has an end");
            let marked = before.trim_end().lines().last().unwrap();
            let file = marked.strip_prefix("<!-- run by ").and_then(|rest| rest.strip_suffix(" -->"));
            let file = file.unwrap_or_else(|| panic!("{}: what is run? {listing}", chapter.display()));
            let source = fs::read_to_string(root().join(file)).unwrap();
            assert!(
                without_indentation(&source).contains(&without_indentation(listing)),
                "{}: {file} is another one:\n{listing}",
                chapter.display()
            );
            (before, listings) = (after, listings + 1);
        }
    }
    assert!(listings >= 8, "only {listings} were found");
}

fn without_indentation(text: &str) -> String {
    text.lines().map(|line| line.trim_start().to_owned() + "\n").collect()
}
