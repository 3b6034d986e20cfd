//! A process is killed at every call of the system that it makes for a lock: the next process finds the old state or the new one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use fairlock::FencingToken;

use super::processes::AT_ONCE;
use super::{Locks, PROGRAM};

/// What changes a file, and what keeps others out.
const CALLS: [&str; 7] = ["flock", "pwrite64", "write", "rename", "linkat", "unlink", "sendto"];

/// It makes the lock's file, takes the lock, and gives it to a waiter; and is killed at the first call of each sort, at the second, …
#[test]
fn a_process_that_is_killed_anywhere_leaves_the_lock_whole() {
    let locks = Locks::new();
    let client = locks.client();
    let (mut last, mut kills) = (FencingToken::new(0), 0);
    for call in CALLS {
        for name in ["old".to_owned(), format!("new, {call}")] {
            let mut survives = |at: &u32| {
                is_not_killed(&locks, &name, call, *at, || {
                    let lock = client.fair_lock(&name).unwrap();
                    let asked = Instant::now();
                    let guard = lock.lock().unwrap();
                    assert!(asked.elapsed() < AT_ONCE, "killed at {call} {at}: {:?}", asked.elapsed());
                    if name == "old" {
                        assert!(guard.token() > last, "killed at {call} {at}");
                        last = guard.token();
                    }
                    guard.unlock().unwrap();
                })
            };
            kills += (1..).find(&mut survives).unwrap() - 1;
        }
    }
    assert!(kills > 20, "{kills}");
}

/// Runs a process that is killed at its call with this number. When it has the lock, or has ended, `then` runs.
fn is_not_killed(locks: &Locks, lock: &str, call: &str, at: u32, then: impl FnOnce()) -> bool {
    let inject = format!("inject={call}:signal=KILL:when={at}");
    let mut process = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject, PROGRAM])
        .args(["hold", "file"])
        .arg(locks.dir())
        .args([lock, "30000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("strace is installed");
    let (mut input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
    let mut lines = output.lines().map_while(Result::ok);
    if lines.next().as_deref() == Some("ready") {
        let _ = writeln!(input, "go");
        if lines.next().as_deref() == Some("held") {
            // The next one has asked, as a rule, when the holder goes on.
            let _ = writeln!(input, "go");
        }
    }
    then();
    drop(input);
    let ended = process.wait().unwrap();
    assert!(ended.success() || ended.signal() == Some(9) || ended.code() == Some(137), "{ended}");
    ended.success()
}
