//! `--at-least`: the lock stays taken after the program.

use std::time::Duration;

use fairlock::Holder;
use fairlock_tests::{RedisServer, WorkDir, eventually};

use crate::support::{
    Running, SOON, arguments, fairlock, lock, output, process_in, script, text, wait_until_dead,
};

/// The holder, if nobody works under the lock any more.
fn kept(server: &RedisServer) -> Option<Holder> {
    let holder = lock(server, "x").inspect().unwrap().holder().cloned()?;
    (holder.hold_count == 0).then_some(holder)
}

#[test]
fn the_lock_stays_taken_until_that_long_after_the_grant_also_if_the_program_fails() {
    let server = RedisServer::start();
    for (program, code) in [("exit 0", 0), ("exit 3", 3)] {
        let said = output(&server.url(), &arguments(&["x", "--at-least", "10m"], program));
        assert_eq!((said.status.code(), text(&said.stderr)), (Some(code), String::new()));
        let left = kept(&server).expect("it is taken").lease_left.unwrap();
        assert!(left > Duration::from_secs(500) && left < Duration::from_secs(600), "{left:?}");
        let next = output(&server.url(), &arguments(&["x", "--wait", "0"], "echo no"));
        assert_eq!((next.status.code(), next.stdout), (Some(124), vec![]));
        let shown = text(&output(&server.url(), &["show", "x"]).stdout);
        assert!(shown.contains("lease left 9m") && shown.contains(", kept after its end\n"), "{shown}");
        assert!(lock(&server, "x").force_unlock().unwrap());
    }
    let said = output(&server.url(), &arguments(&["x", "--at-least", "1ms"], "exit 0"));
    assert_eq!(said.status.code(), Some(0));
    assert!(!lock(&server, "x").is_locked().unwrap());
}

#[test]
fn when_fairlock_is_killed_the_lock_stays_taken_all_the_same() {
    let (server, dir) = (RedisServer::start(), WorkDir::new());
    let pid = dir.file("pid");
    let program = script(&pid, "sleep 1000");
    let mut dead = Running::start(fairlock(&server.url(), &arguments(&["x", "--at-least", "10m"], &program)));
    let program = process_in(&pid);
    dead.0.kill().unwrap();
    dead.0.wait().unwrap();
    wait_until_dead(program);
    eventually(SOON, "the minder has the server keep it", || kept(&server).is_some());
    assert!(kept(&server).unwrap().lease_left.unwrap() > Duration::from_secs(500));
}
