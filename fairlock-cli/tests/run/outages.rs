//! A server that refuses, or does not answer: 122 with its reason and in time, and never 124, which says that another owner has
//! the lock.

use std::process::Output;
use std::time::{Duration, Instant};

use fairlock_tests::{RedisServer, WorkDir, assert_no_residue, eventually};

use crate::support::{
    Running, SOON, arguments, fairlock, lock, output, process_in, script, text, wait_for_line,
    wait_until_dead,
};

/// More than the time-outs of the last calls, and much less than the ten seconds for which a call goes on without an answer.
const IN_TIME: Duration = Duration::from_secs(6);

#[track_caller]
fn assert_says(said: &Output, code: i32, words: &[&str]) {
    let message = text(&said.stderr);
    assert_eq!((said.status.code(), text(&said.stdout)), (Some(code), String::new()), "{message}");
    words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
}

#[test]
fn a_server_that_goes_on_refusing_ends_the_wait_at_once_with_its_reason() {
    let master = RedisServer::start();
    let of_master = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::builder().arg("replicaof", &of_master).start();
    eventually(SOON, "the replica has its master's data", || {
        replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let full = RedisServer::start();
    full.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let of = format!("it takes no writes (REPLICA of {})", master.address());
    // A replica is a wrong address; a full server may have room later.
    for (server, code, reason) in [(&replica, 125, &*of), (&full, 122, "the server is out of memory (OOM")] {
        for wait in [&["x"][..], &["x", "--wait", "0"], &["x", "--wait", "1m"]] {
            let began = Instant::now();
            let said = output(&server.url(), &arguments(&[wait, &["-E", "75"]].concat(), "echo no"));
            assert_says(&said, code, &[reason]);
            assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
        }
    }
    full.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_no_residue(&full, &[]);
}

#[test]
fn a_server_that_is_dead_or_silent_from_the_start_gives_122_in_time() {
    for go in [RedisServer::kill, RedisServer::stop] {
        let server = RedisServer::start();
        let url = server.url();
        go(&server);
        for wait in [&["x"][..], &["x", "--wait", "0"], &["x", "--wait", "500ms"]] {
            let began = Instant::now();
            assert_says(&output(&url, &arguments(wait, "echo no")), 122, &["the server is unavailable"]);
            assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
        }
    }
}

#[test]
fn a_server_that_loads_its_data_gives_122() {
    let server = RedisServer::builder().arg("appendonly", "yes").arg("key-load-delay", "250").start();
    server.query::<()>(&["EVAL", "for i = 1, 6000 do redis.call('SET', 'filler' .. i, i) end", "0"]);
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart());
        eventually(SOON, "it is loading", || {
            let said = output(&server.url(), &arguments(&["x", "--wait", "100ms"], "true"));
            said.status.code() == Some(122) && text(&said.stderr).contains("still loading its data (LOADING")
        });
        restart.join().unwrap();
    });
}

#[test]
fn a_server_that_goes_away_during_the_wait_gives_122_in_time() {
    for go in [RedisServer::kill, RedisServer::stop] {
        let server = RedisServer::start();
        let ours = lock(&server, "x");
        let guard = ours.lock().unwrap();
        let began = Instant::now();
        let mut waits =
            Running::start(fairlock(&server.url(), &arguments(&["x", "--wait", "3s"], "echo no")));
        wait_for_line(&ours, 1);
        go(&server);
        let said = waits.output();
        assert_says(
            &said,
            122,
            &["x was not acquired within 3.0s: the server is unavailable (lock `x`): Redis at"],
        );
        assert!(began.elapsed() < Duration::from_secs(3) + IN_TIME, "{:?}", began.elapsed());
        drop(guard);
    }
}

#[test]
fn a_server_that_is_gone_when_the_program_was_ended_does_not_keep_the_command() {
    for go in [RedisServer::kill, RedisServer::stop] {
        let (server, dir) = (RedisServer::start(), WorkDir::new());
        let pid = dir.file("pid");
        let program = script(&pid, "exec sleep 1000");
        let mut holder =
            Running::start(fairlock(&server.url(), &arguments(&["x", "--lease", "4s"], &program)));
        let process = process_in(&pid);
        go(&server);
        wait_until_dead(process);
        let ended = Instant::now();
        let said = holder.output();
        assert!(ended.elapsed() < IN_TIME, "{:?}", ended.elapsed());
        let kept = "; lock x could not be released, and the server keeps it until its lease ends, for 4.0s at most: ";
        assert_says(&said, 123, &["; the program was ended", kept]);
    }
}

#[test]
fn a_server_that_is_gone_when_the_program_ends_does_not_keep_the_command() {
    for go in [RedisServer::kill, RedisServer::stop] {
        let (server, dir) = (RedisServer::start(), WorkDir::new());
        let (pid, end) = (dir.file("pid"), dir.file("end"));
        let program = script(&pid, &format!("until test -e {}; do sleep 0.01; done; exit 7", end.display()));
        let mut holder = Running::start(fairlock(&server.url(), &arguments(&["x"], &program)));
        process_in(&pid);
        go(&server);
        std::fs::write(&end, "").unwrap();
        let ended = Instant::now();
        let said = holder.output();
        assert!(ended.elapsed() < IN_TIME, "{:?}", ended.elapsed());
        let kept = "fairlock: lock x could not be released, and the server keeps it until its lease ends, for 30s at most: ";
        assert_says(&said, 7, &[kept]);
    }
}
