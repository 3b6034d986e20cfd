//! `--durable`: what a command says while no lock is granted.

use fairlock_tests::{RedisServer, Sentinels, WorkDir, assert_no_residue, eventually};

use crate::support::{Running, arguments, fairlock, lock, output, process_in, script, text, wait_for_line};

/// Waits until the sentinels have been up for as long as the trust asks.
fn until_they_count(servers: &Sentinels, durable: &str) {
    eventually(std::time::Duration::from_secs(60), "the sentinels count", || {
        output(&servers.url(), &["doctor", durable]).status.code() == Some(0)
    });
}

/// How often the text is in what a command said on standard error.
fn count(said: &std::process::Output, what: &str) -> usize {
    text(&said.stderr).matches(what).count()
}

#[test]
fn a_grace_is_told_to_a_caller_whose_time_is_over_and_once_to_one_that_waits() {
    let server = RedisServer::start();
    for (wait, words) in [("0", "is not free"), ("100ms", "was not acquired within 100ms")] {
        let said = output(&server.url(), &["run", "x", "--durable=trust=2s", "--wait", wait, "--", "true"]);
        assert_eq!(said.status.code(), Some(122), "no other owner has it");
        let expected =
            format!("fairlock: x {words}: not held; the server has a new past, and grants no lock for ");
        assert!(text(&said.stderr).starts_with(&expected), "{}", text(&said.stderr));
    }

    let said = output(&server.url(), &["run", "x", "-v", "--durable=trust=2s", "--", "true"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert_eq!(count(&said, "has a new past"), 1, "{}", text(&said.stderr));
    assert_eq!(count(&said, "its grace is over"), 1, "{}", text(&said.stderr));

    // Refused, with what to do.
    let said = output(&server.url(), &["run", "x", "--durable=trust=3s", "--", "true"]);
    assert_eq!(said.status.code(), Some(125));
    for words in
        ["has a grace of 2522 ms, and this client one of 3532 ms", "the same `--durable`", "fairlock_life"]
    {
        assert_eq!(count(&said, words), 1, "{}", text(&said.stderr));
    }
    assert_no_residue(&server, &[]);
}

#[test]
fn a_missing_quorum_is_named() {
    let servers = Sentinels::builder().steady().start();
    let durable = "--durable=quorum,trust=2s";
    let said = output(&servers.servers[0].url(), &["run", "x", durable, "--", "true"]);
    let words = "a quorum is one of sentinels, or of a cluster's nodes: connect to them, or choose --durable=life for a single";
    assert_eq!((said.status.code(), count(&said, words)), (Some(125), 1), "{}", text(&said.stderr));
    until_they_count(&servers, durable);
    servers.sentinels[1].kill();
    servers.sentinels[2].kill();
    let said = output(&servers.url(), &["run", "x", durable, "--", "true"]);
    assert_eq!((said.status.code(), count(&said, "no majority: 1 of 3 sentinels named it")), (Some(122), 1));
}

/// Nobody says which server is in charge, and so whether another owner has the lock.
#[test]
fn a_quorum_that_is_lost_during_the_wait_gives_122() {
    let (servers, dir) = (Sentinels::builder().steady().start(), WorkDir::new());
    let (durable, pid) = ("--durable=quorum,trust=2s", dir.file("pid"));
    until_they_count(&servers, durable);
    let program = script(&pid, "sleep 1000");
    let _holder = Running::start(fairlock(&servers.url(), &arguments(&["x", durable], &program)));
    process_in(&pid);
    let mut waits =
        Running::start(fairlock(&servers.url(), &arguments(&["x", durable, "--wait", "4s"], "echo no")));
    wait_for_line(&lock(&servers.servers[0], "x"), 1);
    servers.sentinels[1].kill();
    servers.sentinels[2].kill();
    let said = waits.output();
    assert_eq!(
        (said.status.code(), text(&said.stdout)),
        (Some(122), String::new()),
        "{}",
        text(&said.stderr)
    );
    let words = ["x was not acquired within 4.0s: the server is unavailable", "no majority: 1 of 3"];
    words.iter().for_each(|words| assert_eq!(count(&said, words), 1, "{}", text(&said.stderr)));
}
